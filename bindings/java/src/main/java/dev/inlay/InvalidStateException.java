package dev.inlay;

/** The right call at the wrong moment: for example a second request in a busy session. */
public class InvalidStateException extends InlayException {
  private static final long serialVersionUID = 1;

  InvalidStateException(int code, String message) {
    super(code, message);
  }
}
