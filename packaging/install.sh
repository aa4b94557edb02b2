#!/bin/sh
# Installs superpage from the directory that this file is in, or removes what it installed.
#
#   ./install.sh [uninstall]      PREFIX=/usr/local LIBDIR=$PREFIX/lib DESTDIR=
#
# DESTDIR is put before every path that is written. The files and the directories that were made are listed in
# $PREFIX/share/superpage/installed; an older installation there is removed first.
set -eu
# What is installed is for everybody, whatever this shell lets others read.
umask 022
PREFIX=${PREFIX:-/usr/local} DESTDIR=${DESTDIR-}
LIBDIR=${LIBDIR:-$PREFIX/lib}
list=$PREFIX/share/superpage/installed
version=unknown

uninstall() {
  # What is in a directory comes before it.
  sort -r "$DESTDIR$list" | while IFS= read -r path; do
    if [ -d "$DESTDIR$path" ] && [ ! -h "$DESTDIR$path" ]; then
      rmdir "$DESTDIR$path" 2>/dev/null || true # somebody has put files there
    else
      rm -f "$DESTDIR$path"
    fi
  done
}

make_directory() {
  [ -d "$DESTDIR$1/" ] && return
  make_directory "$(dirname "$1")"
  mkdir "$DESTDIR$1"
  echo "$1" >>"$made"
}

cache() { # the loader's, of the libraries of the whole system
  case $DESTDIR$LIBDIR in /usr/*) ldconfig 2>/dev/null || true ;; esac
}

case $PREFIX$LIBDIR in /*) ;; *) echo "install.sh: PREFIX and LIBDIR begin with /" >&2 && exit 2 ;; esac
case ${1-install} in
install)
  cd "$(dirname "$0")"
  [ ! -e "$DESTDIR$list" ] || uninstall
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
  made=$work/made
  mkdir -p "$DESTDIR/"
  make_directory "$(dirname "$list")"
  find bin lib include share ! -type d >"$work/files"
  while IFS= read -r file; do
    case $file in
    lib/systemd/*) to=$PREFIX/$file ;;
    lib/*) to=$LIBDIR/${file#lib/} ;;
    *) to=$PREFIX/$file ;;
    esac
    to=${to%.in}
    make_directory "$(dirname "$to")"
    case $file in
    *.in)
      sed "s|@prefix@|$PREFIX|; s|@libdir@|$LIBDIR|; s|@includedir@|$PREFIX/include|; s|@version@|$version|" "$file" >"$DESTDIR$to"
      ;;
    *)
      cp -P "$file" "$DESTDIR$to.new"
      # The tarball may have been unpacked for its owner alone.
      [ -h "$file" ] || chmod u=rwX,go=rX "$DESTDIR$to.new"
      mv -f "$DESTDIR$to.new" "$DESTDIR$to" # programs may be running
      ;;
    esac
    echo "$to" >>"$made"
  done <"$work/files"
  echo "$list" >>"$made"
  cp "$made" "$DESTDIR$list"
  chmod 644 "$DESTDIR$list"
  cache
  echo "superpage $version: $DESTDIR$PREFIX/bin/superpage, $DESTDIR$LIBDIR/libsuperpage.so.0"
  ;;
uninstall)
  [ -e "$DESTDIR$list" ] || { echo "install.sh: nothing installed below $DESTDIR$PREFIX ($list is missing)" >&2 && exit 1; }
  # A killed run may have left settings changed; nobody could restore them afterwards.
  [ "$DESTDIR" ] || [ "$(id -u)" != 0 ] || "$PREFIX/bin/superpage" restore >/dev/null || true
  uninstall
  cache
  ;;
*) sed -n '2,7s/^# \?//p' "$0" >&2 && exit 2 ;;
esac
