package dev.inlay;

/** The device failed; the engine can only be closed. */
public class DeviceLostException extends InlayException {
  private static final long serialVersionUID = 1;

  DeviceLostException(int code, String message) {
    super(code, message);
  }
}
