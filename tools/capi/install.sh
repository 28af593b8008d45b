#!/bin/sh
# Installs what was built: libraries, headers and farcore.pc.
#
#     install.sh FOLDER PREFIX VERSION [PACKAGES]
#
# FOLDER has libfarcore_capi.so and libfarcore_capi.a; PACKAGES are those of pkg-config that the
# static library needs. `cargo xtask capi install` builds the libraries and calls this.
set -eu
if [ $# -lt 3 ]; then
    echo "usage: install.sh FOLDER PREFIX VERSION [PACKAGES]" >&2
    exit 2
fi
here=$(cd "$(dirname "$0")" && pwd)
folder=$1
version=$3
mkdir -p "$2"
prefix=$(cd "$2" && pwd)

# As build.rs names the library.
name=libfarcore.so.${version%.*}
install -D -m 755 "$folder/libfarcore_capi.so" "$prefix/lib/libfarcore.so.$version"
ln -sf "libfarcore.so.$version" "$prefix/lib/$name"
ln -sf "$name" "$prefix/lib/libfarcore.so"
install -D -m 644 "$folder/libfarcore_capi.a" "$prefix/lib/libfarcore.a"

install -D -m 644 -t "$prefix/include" "$here"/include/farcore.h "$here"/include/farcore.hpp
install -D -m 644 -t "$prefix/include/farcore" "$here"/include/farcore/*.hpp

escaped=$(printf '%s' "$prefix" | sed 's/[&|\\]/\\&/g')
mkdir -p "$prefix/lib/pkgconfig"
sed -e "s|@PREFIX@|$escaped|" -e "s|@VERSION@|$version|" -e "s|@REQUIRES@|${4-}|" \
    "$here/farcore.pc.in" > "$prefix/lib/pkgconfig/farcore.pc"
