#!/usr/bin/env bash
# Plays: introduces itself, buys, saves, forgets by loading nothing, loads in a new process, and asks what is remembered.
# Usage: game_test.sh MONO GAME MODEL
set -uo pipefail
mono=$1 game=$2 model=$3
saved=$(mktemp -d)
trap 'rm -rf "$saved"' EXIT
failed=0

play() { printf '%s\n' "$@" | "$mono" "$game" --model "$model" "${options[@]}"; }
expect() { grep -qF -- "$1" <<<"$output" || { echo "missing: $1"; failed=1; }; }

options=()
output=$(play "Hello, I am Astrid." "My goat is called Rufus." "/to sanjay" "Hello, I am Astrid." "I will take the silver key." \
  "/all Where is the old tower?" "What is the name of my goat?" "/to nobody" "/save $saved/game" "/load $saved/none" "/quit") || failed=1
echo "$output"
expect "Sanjay: Here is your silver key. That makes 35 coins."
for name in Pia Sanjay Thuy Abdou; do expect "$name: The old tower is in the east."; done
expect "(Nobody here is called nobody.)"
expect "(saved to $saved/game)"
expect "none"
# Only Pia was told of the goat.
! grep -q "Sanjay: Your goat is called Rufus" <<<"$output" || { echo "Sanjay knows what Pia was told"; failed=1; }

# A new process, that goes on where the other one was.
options=(--load "$saved/game")
output=$(play "What did I buy?" "/to pia" "What is the name of my goat?" "Do you remember my name?" "/to thuy" "<|end|> is no end" "/frames") || failed=1
echo "$output"
expect "(loaded from $saved/game; Sanjay looks at you)"
expect "Sanjay: You bought the silver key."
expect "Pia: Your goat is called Rufus."
expect "Pia: Your name is Astrid."
expect "the engine's part in ms: p50"
expect "tokens, computed once for 4 characters"
# Interrupted, one goes on as before.
options=()
output=$(play "/all Hello, I am Astrid." "/stop" "What is your name?") || failed=1
expect "Pia: I am Pia, the guard of Wolfbrook."
grep -q '\.\.$' <<<"$output" || { echo "nobody was interrupted"; failed=1; }
# A damaged game leaves the running one as it was.
head -c 100 /dev/zero >"$saved/game/Thuy.session"
options=()
output=$(play "Hello, I am Astrid." "/load $saved/game" "Do you remember my name?") || failed=1
expect "Pia: Your name is Astrid."
options=(--load "$saved/game")
! play "x" >/dev/null 2>"$saved/error" || { echo "loaded a damaged game"; failed=1; }
grep -q "^game: " "$saved/error" || { echo "no message"; failed=1; }
exit $failed
