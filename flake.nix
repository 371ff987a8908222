# Nix: `nix run .# -- who /dev/ttyUSB0`, `nix build .#dflockd`; on NixOS, nixosModules.default and
# services.lfpd.enable = true or services.dflockd.enable = true.
{
  description = "One lock per serial port for all programs";

  inputs.nixpkgs.url = "nixpkgs/nixos-unstable";

  outputs =
    { self, nixpkgs }:
    let
      systems = [ "x86_64-linux" "aarch64-linux" "armv7l-linux" "riscv64-linux" ];
      each = make: nixpkgs.lib.genAttrs systems (system: make nixpkgs.legacyPackages.${system});
      all = pkgs: {
        lfpd = pkgs.callPackage ./packaging/nix/package.nix {
          name = "lfpd";
          crates = [ "lfpd" "lfp-cli" ];
          program = "lfp";
        };
        lfp-preload = pkgs.callPackage ./packaging/nix/package.nix { name = "lfp-preload"; };
        file-semaphore = pkgs.callPackage ./packaging/nix/package.nix {
          name = "file-semaphore";
          features = [ "file-semaphore/cli" ];
          program = "sema";
        };
        dflockd = pkgs.callPackage ./packaging/nix/package.nix { name = "dflockd"; };
        dflock = pkgs.callPackage ./packaging/nix/package.nix {
          name = "dflock";
          features = [ "dflock/cli" ];
        };
      };
    in
    {
      packages = each (pkgs: all pkgs // { default = (all pkgs).lfpd; });
      nixosModules.default = import ./packaging/nix/module.nix self;
    };
}
