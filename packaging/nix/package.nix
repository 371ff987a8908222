# One package of the workspace: its programs compiled, and installed by packaging/install.
{
  lib,
  rustPlatform,
  name,
  crates ? [ name ],
  features ? [ ],
  program ? name,
}:
let
  manifest = lib.importTOML (if name == "lfpd" then ../../Cargo.toml else ../../crates/${name}/Cargo.toml);
in
rustPlatform.buildRustPackage {
  pname = name;
  version = "0.1.0";
  src = ../..;
  cargoLock.lockFile = ../../Cargo.lock;

  cargoBuildFlags = lib.concatMap (crate: [ "--package" crate ]) crates;
  buildFeatures = features;
  # The tests make namespaces and run other programs: tests/run, outside.
  doCheck = false;

  postPatch = "patchShebangs packaging/install";
  installPhase = ''
    runHook preInstall
    built=$(find target -name release -type d | grep -v '/build/' | tail -n 1)
    packaging/install --prefix "$out" --sbindir "$out/bin" --built "$built" ${name}
    runHook postInstall
  '';

  meta = {
    inherit (manifest.package) description;
    homepage = "https://lfpd.invalid/";
    license = [ lib.licenses.mit lib.licenses.asl20 ];
    platforms = lib.platforms.linux;
    mainProgram = program;
  };
}
