package dev.inlay;

/**
 * A named prefix of a model: a system prompt, a document. The last handle's end forgets it; sessions opened from it go on.
 */
public final class Prefix extends NativeObject {
  private final Model model;
  private final String name;

  Prefix(Model model, String name, long number) {
    super(number, InlayC::inlay_prefix_release);
    this.model = model;
    this.name = name;
  }

  public String name() {
    return name;
  }

  /** A session whose log is the prefix. */
  public Session open() {
    long[] session = new long[1];
    call(prefix -> InlayC.inlay_prefix_open(prefix, session));
    return new Session(model, session[0], null);
  }

  /** Whether its KV is computed and kept. */
  public void pin(boolean pinned) {
    call(prefix -> InlayC.inlay_prefix_pin(prefix, pinned ? 1 : 0));
  }

  public PrefixInfo info() {
    return call(prefix -> {
      InlayPrefixInfo info = new InlayPrefixInfo();
      try {
        InlayC.inlay_prefix_get_info(prefix, info);
        return new PrefixInfo(info);
      } finally {
        info.delete();
      }
    });
  }
}
