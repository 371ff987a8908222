# NixOS: services.lfpd.enable = true starts the service with its Unix socket, and gives only its user write
# access to the lock directory. services.dflockd.enable = true starts the lock server, with the variables of
# dflockd(8) in services.dflockd.settings.
flake:
{ config, lib, pkgs, ... }:
let
  inherit (flake.packages.${pkgs.stdenv.hostPlatform.system}) lfpd dflockd dflock;
  server = config.services.dflockd;
in
{
  options.services.lfpd.enable = lib.mkEnableOption "the Lock File Protocol service";
  options.services.dflockd = {
    enable = lib.mkEnableOption "the lease lock server";
    address = lib.mkOption {
      type = lib.types.str;
      default = "127.0.0.1:6388";
      description = "The address and port of the server, for dflockd.socket.";
    };
    settings = lib.mkOption {
      type = lib.types.attrsOf lib.types.str;
      default = { };
      example = { DFLOCKD_MAX_LOCKS = "100000"; };
      description = "Variables of dflockd(8). They are readable by every user; for secrets, name a file.";
    };
  };

  config = lib.mkMerge [
    (lib.mkIf config.services.lfpd.enable {
      environment.systemPackages = [ lfpd ];
      users.users.lfpd = {
        isSystemUser = true;
        group = "lfpd";
        description = "Lock File Protocol service";
      };
      users.groups.lfpd = { };
      systemd.packages = [ lfpd ];
      systemd.tmpfiles.packages = [ lfpd ];
      systemd.sockets.lfpd-unix.wantedBy = [ "sockets.target" ];
    })
    (lib.mkIf server.enable {
      environment.systemPackages = [ dflock ];
      systemd.packages = [ dflockd ];
      systemd.sockets.dflockd = {
        wantedBy = [ "sockets.target" ];
        # The empty line takes the address of the package away.
        socketConfig.ListenStream = [ "" server.address ];
      };
      systemd.services.dflockd = {
        wantedBy = [ "multi-user.target" ];
        environment = server.settings;
      };
    })
  ];
}
