#!/usr/bin/env bash
# The self-contained library in Java's jar and in C#'s package: the same answer, and none of its dependencies taken from the system.
# shellcheck source=support.sh
. "$(dirname "$0")/support.sh"
library=$BUILD/self_contained/libinlay.so.0
bindings=$BUILD/bindings
[ -e "$library" ] || skip "it was not built"
cd "$work"
ran=""

# says COMMAND...: the answer of the build's own example, with no library of abseil, protobuf or the C++ runtime of ours.
says() {
  local said
  said=$(LD_DEBUG=files LD_DEBUG_OUTPUT=$work/files "$@") || { cat files.* | grep -i error >&2 || true; fail "$1 ends with status $?"; }
  [ "$said" = "$("$BUILD/bin/simple_c" "$model")" ] || fail "$1 says: $said"
  grep -q 'file=.*libinlay.so.0 ' files.* || fail "no libraries were logged"
  ! grep -hoE 'file=lib(absl|protobuf|hwy|pcre2|utf8proc)[^ ]*' files.* | sort -u | grep . || fail "$1 took these from the system"
  rm files.*
  ran="$ran $1"
}

if [ -e "$bindings/java/inlay.jar" ] && command -v jar >/dev/null; then
  echo "== Java"
  cp "$bindings/java/inlay.jar" .
  inside=$(jar --list --file inlay.jar | grep 'libinlay\.so\.0$')
  mkdir -p "$(dirname "$inside")"
  cp "$library" "$inside"
  jar --update --file inlay.jar "$inside"
  cat >Say.java <<'END'
import dev.inlay.*;

class Say {
  public static void main(String[] paths) {
    try (Engine engine = Engine.create(); Model model = engine.load(paths[0]); Session session = model.newSession()) {
      session.submit("Once upon a time,").text().forEach(System.out::print);
    }
  }
}
END
  says java -cp inlay.jar Say.java "$model"
fi

if [ -e "$bindings/csharp/Inlay.dll" ] && command -v mono mcs >/dev/null; then
  echo "== C#"
  cmake --install "$BUILD" --component csharp --prefix package >/dev/null
  cp package/lib/net461/Inlay.dll package/runtimes/*/native/libinlay_csharp.so "$library" .
  cat >Say.cs <<'END'
using System;
using Inlay;

class Say
{
    static void Main(string[] paths)
    {
        using (var engine = new Engine())
        using (Model model = engine.LoadModel(paths[0]))
        using (Session session = model.CreateSession())
        {
            foreach (TokenEvent next in session.Stream("Once upon a time,")) Console.Write(next.Text);
        }
    }
}
END
  mcs -langversion:7.2 -r:Inlay.dll Say.cs
  says mono Say.exe "$model"
fi
[ -n "$ran" ] || skip "neither Java nor mono"
