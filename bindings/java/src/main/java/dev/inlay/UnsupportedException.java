package dev.inlay;

/** Well-formed, but this build or model cannot do it. */
public class UnsupportedException extends InlayException {
  private static final long serialVersionUID = 1;

  UnsupportedException(int code, String message) {
    super(code, message);
  }
}
