#!/usr/bin/env bash
# make release: build the version of pyproject.toml from a clean tree and tag it; nothing is uploaded.
# What is missing is refused with a line; run it after `make test` and `.ci/run`.
set -euo pipefail
cd "$(dirname "$0")/.."

refuse() {
    echo "release: $1" >&2
    exit 2
}

version=$(sed -n 's/^version = "\(.*\)"$/\1/p' pyproject.toml)
tag="v$version"
[ -z "$(git status --porcelain)" ] || refuse "the tree has uncommitted changes (git status); commit or remove them"
[ -z "$(git tag --list "$tag")" ] || refuse "$tag is tagged already; raise version in pyproject.toml"
grep -q "^version: $version\$" CITATION.cff || refuse "CITATION.cff does not say version: $version; correct it"
grep -q "^## $version - [0-9-]*\$" CHANGELOG.md || refuse "CHANGELOG.md has no '## $version - DATE'; rename Unreleased"
unreleased=$(sed -n '/^## Unreleased$/,/^## [0-9]/{/^## /d;/^$/d;p}' CHANGELOG.md)
[ -z "$unreleased" ] || refuse "CHANGELOG.md has entries under Unreleased; move them under $version"

rm -rf build dist
"$1" -m build --quiet
built=$(cd dist && ls)
expected=$(printf 'vit_parity-%s-py3-none-any.whl\nvit_parity-%s.tar.gz' "$version" "$version")
[ "$built" = "$expected" ] || refuse "dist/ has $(echo $built), expected $(echo $expected)"
git tag --annotate "$tag" --message "vit-parity $version"
echo "built dist/vit_parity-$version.tar.gz and .whl, tagged $tag; to publish:"
echo "  git push origin $tag && $1 -m twine upload dist/*"
