//! Words for errors of TLS and its files. Pure. The messages of rustls itself are names from its source.

use rustls::pki_types::pem;
use rustls::{CertificateError, Error};

/// Why there is no TLS to a server.
#[expect(clippy::wildcard_enum_match_arm, reason = "a foreign enum, which may get more variants")]
pub(super) fn words_of_tls(reason: &Error) -> String {
    let words = match reason {
        Error::InvalidMessage(_) => "the server does not speak TLS",
        Error::InvalidCertificate(problem) => of_certificate(problem),
        Error::NoCertificatesPresented => "the server shows no certificate",
        Error::PeerIncompatible(_) => {
            "no TLS version or cipher in common with the server (TLS 1.2 or 1.3)"
        }
        Error::PeerMisbehaved(_)
        | Error::InappropriateMessage { .. }
        | Error::InappropriateHandshakeMessage { .. }
        | Error::DecryptError => "the server violates TLS",
        Error::AlertReceived(alert) => {
            // RFC 8446, 6: the numbers have names there.
            return format!("the server ended the TLS handshake (alert {})", u8::from(*alert));
        }
        _ => "TLS with the server failed",
    };
    words.to_owned()
}

#[expect(clippy::wildcard_enum_match_arm, reason = "a foreign enum, which may get more variants")]
fn of_certificate(problem: &CertificateError) -> &'static str {
    match problem {
        CertificateError::UnknownIssuer => {
            "the server's certificate is not signed by a trusted authority; see --tls-ca"
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            "the server's certificate is for another name; see --tls-name"
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "the server's certificate has expired"
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "the server's certificate is not valid yet"
        }
        // Also where a trusted authority has the name of a certificate that signed itself.
        CertificateError::BadSignature => {
            "the signature under the server's certificate is wrong; if it signed itself, see --tls-ca"
        }
        CertificateError::BadEncoding => "the server's certificate is damaged",
        CertificateError::Revoked => "the server's certificate is revoked",
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            "the server's certificate is not made for servers (extendedKeyUsage=serverAuth)"
        }
        // webpki has no word of rustls' for this one.
        CertificateError::Other(other) if other.to_string().contains("CaUsedAsEndEntity") => {
            "the server shows the certificate of an authority (CA:TRUE) as its own; make it one \
             with basicConstraints=CA:FALSE, or sign another with it"
        }
        _ => {
            "the server's certificate is of an unsupported kind; if it signed itself, see --tls-ca"
        }
    }
}

/// Why a file has no certificates.
#[expect(clippy::wildcard_enum_match_arm, reason = "a foreign enum, which may get more variants")]
pub(super) fn words_of_pem(reason: &pem::Error) -> String {
    match reason {
        pem::Error::Io(error) => error.to_string(),
        pem::Error::MissingSectionEnd { .. } => {
            "the end is missing; is the file cut short?".to_owned()
        }
        pem::Error::NoItemsFound => "it contains nothing of this kind".to_owned(),
        _ => "not a PEM file, or a damaged one".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::of;
    use rstest::rstest;
    use rustls::{AlertDescription, CertificateError, Error};

    /// No name out of somebody's sources gets to people.
    #[rstest]
    #[case(Error::AlertReceived(AlertDescription::HandshakeFailure), "(alert 40)")]
    #[case(Error::InvalidCertificate(CertificateError::BadEncoding), "is damaged")]
    #[case(
        Error::InvalidCertificate(CertificateError::UnhandledCriticalExtension),
        "of an unsupported kind"
    )]
    #[case(
        Error::InvalidCertificate(CertificateError::UnknownRevocationStatus),
        "of an unsupported kind"
    )]
    #[case(Error::NoCertificatesPresented, "shows no certificate")]
    #[case(Error::HandshakeNotComplete, "failed")]
    fn tls_errors_are_told_in_plain_words(#[case] reason: Error, #[case] words: &str) {
        let said = words_of_tls(&reason);
        assert!(said.contains(words), "{said}");
        let is_name = |word: &str| word.chars().skip(1).any(char::is_uppercase) && word != "TLS";
        assert!(!said.split(|c: char| !c.is_alphabetic()).any(is_name), "{said}");
    }
}
