package dev.inlay;

/** A file, prefix or kernel that was named does not exist. */
public class NotFoundException extends InlayException {
  private static final long serialVersionUID = 1;

  NotFoundException(int code, String message) {
    super(code, message);
  }
}
