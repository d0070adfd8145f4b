package dev.inlay;

/** A value, file or text is not what it must be. */
public class InvalidArgumentException extends InlayException {
  private static final long serialVersionUID = 1;

  InvalidArgumentException(int code, String message) {
    super(code, message);
  }
}
