package inlay

import (
	"math"
	"sync/atomic"
	"time"
)

// handle is a number of the library's, released once. The library looks numbers up and never uses one twice, and keeps what a
// call works on until it returns: a call that runs beside Close succeeds or fails, and nothing else. What is left to do here is
// that the finalizer does not run during a method: its last line is runtime.KeepAlive.
type handle struct {
	number atomic.Uintptr
	noun   string
}

func (h *handle) set(noun string, number uintptr) {
	h.noun = noun
	h.number.Store(number)
}

func (h *handle) get() (uintptr, error) {
	if number := h.number.Load(); number != 0 {
		return number, nil
	}
	return 0, closed(h.noun)
}

// take gives the number to whoever releases it; 0 to all others.
func (h *handle) take() uintptr { return h.number.Swap(0) }

// narrow converts options to the widths that C has, and keeps what was wrong first.
type narrow struct{ err error }

func (n *narrow) uint32(name string, value int) uint32 {
	if value < 0 || value > math.MaxUint32 {
		n.fail(name, value)
		return 0
	}
	return uint32(value)
}

func (n *narrow) int32(name string, value int) int32 {
	if value < math.MinInt32 || value > math.MaxInt32 {
		n.fail(name, value)
		return 0
	}
	return int32(value)
}

func (n *narrow) micros(name string, value time.Duration) uint64 {
	if value < 0 {
		n.fail(name, value)
		return 0
	}
	micros := uint64(value / time.Microsecond)
	if value%time.Microsecond != 0 {
		micros++ // less than a microsecond is not none
	}
	return micros
}

func (n *narrow) text(name, value string) string {
	if err := checkText(name, value); err != nil && n.err == nil {
		n.err = err
	}
	return value
}

func (n *narrow) fail(name string, value any) {
	if n.err == nil {
		n.err = invalid("%s is %v, which is out of range", name, value)
	}
}

func flag(on bool) int32 {
	if on {
		return 1
	}
	return 0
}
