#!/bin/sh
# Builds the book of docs/ with mdBook, and checks the links between its pages, their anchors and pictures with
# LinkChecker. Run it in the workspace. Takes the path of the target directory.
set -eu
target=$1
version=0.4.52

mdbook=$target/tools/bin/mdbook
installed=$("$mdbook" --version 2>/dev/null) || installed=
case $installed in
*"v$version") ;;
*) timeout 900 cargo install mdbook --version "$version" --locked --no-default-features --root "$target/tools" ;;
esac

# LinkChecker gives up the rights of root, so the copy is readable for all.
book=$(mktemp -d)
trap 'rm -rf "$book"' EXIT
"$mdbook" build docs --dest-dir "$book/html"
chmod -R a+rX "$book"

printf '[AnchorCheck]\n' >"$book/linkcheckerrc"
# It follows links within the book. Other addresses are not fetched, and folders of the repository are not in the book.
timeout 900 linkchecker --config "$book/linkcheckerrc" --ignore-url "^file://$book/(examples|programs|tests)/" "$book/html/index.html"

# Every page is in the table of contents.
(cd docs && find . -name '*.md' ! -name SUMMARY.md | sed 's,^\./,,' | sort) >"$book/pages"
sed -n 's/.*](\(.*\.md\)).*/\1/p' docs/SUMMARY.md | sort >"$book/contents"
diff "$book/pages" "$book/contents"
