package dev.inlay;

import java.util.List;

/** What a request or a prefix reads. Immutable. */
public abstract sealed class Input {
  private Input() {}

  abstract void applyTo(InlayRequestOptions options);

  abstract void applyTo(InlayPrefixOptions options);

  /** Text, in which what spells a special token becomes that token; special ones are added where the log is empty. */
  public static Input text(String text) {
    return text(text, true, true);
  }

  /**
   * @param addSpecial what the tokenizer puts before a text, where the log is empty
   * @param parseSpecial text that spells a special token becomes that token: not for text one does not trust
   */
  public static Input text(String text, boolean addSpecial, boolean parseSpecial) {
    return new OfText(Text.bytes(text), TextFlags.of(addSpecial, parseSpecial));
  }

  /** A pair of texts, which in a request takes the place of the session's log; for encoders, and not for prefixes. */
  public static Input pair(String text, String other) {
    return new OfPair(Text.bytes(text), Text.bytes(other));
  }

  /** Tokens and the types of each, of encoders that have several; not for prefixes. */
  public static Input tokens(int[] tokens, int[] types) {
    if (tokens.length != types.length)
      throw new IllegalArgumentException(types.length + " types of " + tokens.length + " tokens, allowed: as many");
    return new OfTypedTokens(tokens.clone(), types.clone());
  }

  public static Input tokens(int... tokens) {
    return new OfTokens(tokens.clone());
  }

  /** A whole conversation; in a request it takes the place of the session's log. */
  public static Input chat(Chat chat) {
    return new OfChat(Text.bytes(chat.json()));
  }

  public static Input chat(List<Message> messages) {
    return chat(Chat.of(messages));
  }

  private static final class OfText extends Input {
    private final byte[] text;
    private final int flags;

    OfText(byte[] text, int flags) {
      this.text = text;
      this.flags = flags;
    }

    @Override
    void applyTo(InlayRequestOptions options) {
      options.keepText(text);
      options.setText_flags(flags);
    }

    @Override
    void applyTo(InlayPrefixOptions options) {
      options.keepText(text);
      options.setText_flags(flags);
    }
  }

  private static final class OfTokens extends Input {
    private final int[] tokens;

    OfTokens(int[] tokens) {
      this.tokens = tokens;
    }

    @Override
    void applyTo(InlayRequestOptions options) {
      options.keepTokens(tokens);
    }

    @Override
    void applyTo(InlayPrefixOptions options) {
      options.keepTokens(tokens);
    }
  }

  private static final class OfPair extends Input {
    private final byte[] text;
    private final byte[] other;

    OfPair(byte[] text, byte[] other) {
      this.text = text;
      this.other = other;
    }

    @Override
    void applyTo(InlayRequestOptions options) {
      options.keepText(text);
      options.keepTextPair(other);
    }

    @Override
    void applyTo(InlayPrefixOptions options) {
      throw new IllegalArgumentException("a pair of texts, allowed in a prefix: all others");
    }
  }

  private static final class OfTypedTokens extends Input {
    private final int[] tokens;
    private final int[] types;

    OfTypedTokens(int[] tokens, int[] types) {
      this.tokens = tokens;
      this.types = types;
    }

    @Override
    void applyTo(InlayRequestOptions options) {
      options.keepTokens(tokens);
      options.keepTokenTypes(types);
    }

    @Override
    void applyTo(InlayPrefixOptions options) {
      throw new IllegalArgumentException("tokens with types, allowed in a prefix: all others");
    }
  }

  private static final class OfChat extends Input {
    private final byte[] json;

    OfChat(byte[] json) {
      this.json = json;
    }

    @Override
    void applyTo(InlayRequestOptions options) {
      options.keepChat(json);
    }

    @Override
    void applyTo(InlayPrefixOptions options) {
      options.keepChat(json);
    }
  }
}
