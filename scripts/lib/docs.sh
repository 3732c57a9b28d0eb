# shellcheck shell=bash
# The pages say what is true: settings are those of the program, links lead somewhere. Sourced by scripts/test.

check_docs() {
  check_links
  scripts/check-promises
  command -v jq >/dev/null || { say "skipped: there is no jq to compare docs/configuration.md with"; return 0; }
  local program
  program=$(target_directory)/debug/mutirao
  cargo build --quiet --package mutirao
  "$program" config list --json |
    scripts/settings-page | diff docs/configuration.md - ||
    fail "docs/configuration.md is out of date: mutirao config list --json | ./scripts/settings-page > docs/configuration.md"
}

check_links() {
  local page link broken=0
  while IFS=: read -r page link; do
    link=${link#*](}
    link=${link%%[)#]*}
    case $link in '' | http*) continue ;; esac
    [[ -e $(dirname "$page")/$link ]] || { say "$page: there is no $link"; broken=1; }
  done < <(grep -oHE '\]\([^) ]+\)' ./*.md docs/*.md)
  ((broken == 0))
}
