package inlay

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"inlay.dev/go/inlay/internal/capi"
)

// Code says what kind of failure an error is. Codes are errors themselves, to compare with: errors.Is(err, inlay.ErrNotFound).
type Code int32

// The library's codes. Their values are pinned.
const (
	ErrInvalidArgument   Code = 1  // a value, file or text is not what it must be
	ErrInvalidHandle     Code = 2  // something was closed while it was used
	ErrInvalidState      Code = 3  // right call, wrong moment: for example a second request in a busy session
	ErrNotFound          Code = 4  // a file, tensor, template or kernel that was named does not exist
	ErrUnsupported       Code = 5  // well-formed, but this build cannot do it; the message names it
	ErrResourceExhausted Code = 6  // over a budget or limit of this engine; the message has the numbers
	ErrOutOfMemory       Code = 7  // the allocator had none
	ErrCancelled         Code = 8  // by Cancel, Close or a context
	ErrTimeout           Code = 9  // a deadline passed
	ErrClosed            Code = 11 // used after Close, of the thing itself or of its engine
	ErrIO                Code = 12 // the system refused to read or write a file
	ErrNumeric           Code = 13 // the model produced NaN or infinity for this request
	ErrDeviceLost        Code = 14 // the device failed; the engine can only be closed
	ErrInternal          Code = 15 // a bug in the library
)

const statusOK = 0

// Name is the code's name in C: "INLAY_NOT_FOUND".
func (c Code) Name() string { return capi.Inlay_status_name(int32(c)) }

func (c Code) Error() string { return "inlay: " + c.Name() }

// Error is what every function of this package returns when it fails, io.EOF apart.
//
// errors.Is compares with a Code, and with context.Canceled or context.DeadlineExceeded where a context was the reason;
// errors.As takes it as *Error.
type Error struct {
	Code    Code
	Message string // what was wrong, the value got, the value allowed, the next step
	cause   error
}

func (e *Error) Error() string {
	if e.Message == "" {
		return e.Code.Error()
	}
	return fmt.Sprintf("%s: %s", e.Code.Error(), e.Message)
}

// Name is the code's name in C.
func (e *Error) Name() string { return e.Code.Name() }

// Is says whether target is this error's Code.
func (e *Error) Is(target error) bool {
	code, ok := target.(Code)
	return ok && code == e.Code
}

// Unwrap is the context's error where a context was the reason, and nil otherwise.
func (e *Error) Unwrap() error { return e.cause }

func invalid(format string, values ...any) error {
	return &Error{Code: ErrInvalidArgument, Message: fmt.Sprintf(format, values...)}
}

func closed(noun string) error {
	return &Error{Code: ErrClosed, Message: "the " + noun + " was closed"}
}

// contextError is for an err that a context gave.
func contextError(err error, message string) error {
	code := ErrCancelled
	if errors.Is(err, context.DeadlineExceeded) {
		code = ErrTimeout
	}
	return &Error{Code: code, Message: message, cause: err}
}

// check makes an error of a status and the error object that came with it, and releases that.
func check(status int32, object *uintptr) error {
	if status == statusOK {
		return nil
	}
	err := &Error{Code: Code(status)}
	if *object != 0 {
		err.Message = capi.Inlay_error_message(*object)
		capi.Inlay_error_release(*object)
	}
	return err
}

// call runs a function of the library that takes an error object.
func call(f func(object *uintptr) int32) error {
	var object uintptr
	status := f(&object)
	return check(status, &object)
}

// bytesOf is call for a function that makes a buffer.
func bytesOf(f func(buffer, object *uintptr) int32) ([]byte, error) {
	var buffer, object uintptr
	if err := check(f(&buffer, &object), &object); err != nil {
		return nil, err
	}
	return capi.TakeBuffer(buffer), nil
}

// checkText refuses what C would cut short.
func checkText(name, text string) error {
	if i := strings.IndexByte(text, 0); i >= 0 {
		return invalid("%s has a NUL byte at offset %d, allowed: none", name, i)
	}
	return nil
}

// checkABI says whether the library that was loaded is new enough for this package.
func checkABI() error {
	if got := int(capi.Inlay_abi_version()); got < capi.INLAY_ABI_VERSION {
		return &Error{Code: ErrUnsupported, Message: fmt.Sprintf(
			"the libinlay that was loaded (%s) has ABI %d, this package needs %d: install a newer one",
			capi.Inlay_version(), got, capi.INLAY_ABI_VERSION)}
	}
	return nil
}

// Version is that of the library that is loaded, such as "0.1.0".
func Version() string { return capi.Inlay_version() }
