package dev.inlay;

/** What was asked for was cancelled, or the thread that waited for it was interrupted. */
public class CancelledException extends InlayException {
  private static final long serialVersionUID = 1;

  CancelledException(int code, String message) {
    super(code, message);
  }
}
