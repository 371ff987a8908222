# NixOS: services.lfpd.enable = true starts the service with its Unix socket, and gives only its user write
# access to the lock directory.
flake:
{ config, lib, pkgs, ... }:
let
  package = flake.packages.${pkgs.stdenv.hostPlatform.system}.lfpd;
in
{
  options.services.lfpd.enable = lib.mkEnableOption "the Lock File Protocol service";

  config = lib.mkIf config.services.lfpd.enable {
    environment.systemPackages = [ package ];
    users.users.lfpd = {
      isSystemUser = true;
      group = "lfpd";
      description = "Lock File Protocol service";
    };
    users.groups.lfpd = { };
    systemd.packages = [ package ];
    systemd.tmpfiles.packages = [ package ];
    systemd.sockets.lfpd-unix.wantedBy = [ "sockets.target" ];
  };
}
