package dev.inlay;

/** A request was not done by its deadline. */
public class DeadlineExceededException extends InlayException {
  private static final long serialVersionUID = 1;

  DeadlineExceededException(int code, String message) {
    super(code, message);
  }
}
