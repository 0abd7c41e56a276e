#!/bin/sh
# Makes the root file system of wharf/base from Debian's own packages, where no registry can be
# reached. Usage: bootstrap.sh PACKAGES OUT.tar   (as root; about half a minute)
set -eu

packages=$1
out=$2
mirror=${WHARF_DEBIAN_MIRROR:-} # none: mmdebstrap's own, Debian's
suite=bookworm

if ! command -v mmdebstrap >/dev/null 2>&1; then
  if ! command -v apt-get >/dev/null 2>&1; then
    echo "mmdebstrap is missing and this host has no apt-get to install it with" >&2
    exit 3
  fi
  echo "installing mmdebstrap with apt-get" >&2
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends mmdebstrap >&2
fi

# Hosts that trust other keys than Debian's (Ubuntu) name the keyring themselves.
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
if [ ! -e "$keyring" ]; then
  echo "installing debian-archive-keyring with apt-get" >&2
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends debian-archive-keyring >&2
fi

if [ -n "$mirror" ]; then
  set -- \
    "deb [signed-by=$keyring] $mirror/debian $suite main" \
    "deb [signed-by=$keyring] $mirror/debian $suite-updates main" \
    "deb [signed-by=$keyring] $mirror/debian-security $suite-security main"
else
  set --
fi

exec mmdebstrap --variant=minbase --format=tar \
  --include="$(paste -sd, "$packages")" \
  --dpkgopt='path-exclude=/usr/share/man/*' \
  --dpkgopt='path-exclude=/usr/share/info/*' \
  --dpkgopt='path-exclude=/usr/share/doc/*' \
  --dpkgopt='path-include=/usr/share/doc/*/copyright' \
  --dpkgopt='path-exclude=/usr/share/locale/*' \
  --keyring="$keyring" "$suite" "$out" "$@"
