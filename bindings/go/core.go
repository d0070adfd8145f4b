package inlay

import (
	"context"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"inlay.dev/go/inlay/internal/capi"
)

// core is the part of an engine that goroutines of this package hold: the Engine itself must become unreachable when its user
// drops it.
//
// Events are taken for all streams at once, by the pump: one goroutine that waits for the engine's descriptor the way Go waits
// for sockets, so that a thousand waiting streams hold no thread. In a host-driven engine there is no pump: Step takes them, and
// so does who looks for one.
type core struct {
	handle handle
	host   bool
	log    capi.Callback
	wakeup *os.File // the pump waits for it; nil in a host-driven engine

	taking sync.Mutex  // held while events are taken and delivered, so that each stream's stay in order
	batch  *capi.Batch // nil once closed

	mu     sync.Mutex
	queues map[uint64]*queue // of requests whose last event was not taken; nil once closed
	lastID uint64
}

func newCore(number uintptr, host bool, log capi.Callback) (*core, error) {
	c := &core{host: host, log: log, batch: capi.NewBatch(), queues: map[uint64]*queue{}}
	c.handle.set("engine", number)
	if host {
		return c, nil
	}
	err := c.openWakeup()
	if err != nil {
		c.close()
		return nil, err
	}
	go c.pump()
	return c, nil
}

func (c *core) openWakeup() error {
	number, err := c.handle.get()
	if err != nil {
		return err
	}
	var fd int32
	if err := call(func(object *uintptr) int32 { return capi.Inlay_engine_event_fd(number, &fd, object) }); err != nil {
		return err
	}
	// The engine closes its descriptor; Go's poller needs one that nobody closes under it.
	own, _, errno := syscall.Syscall(syscall.SYS_FCNTL, uintptr(fd), syscall.F_DUPFD_CLOEXEC, 0)
	if errno != 0 {
		return &Error{Code: ErrResourceExhausted, Message: fmt.Sprintf("no descriptor to wait for events: %v", errno)}
	}
	c.wakeup = os.NewFile(own, "inlay events")
	// Fails where the poller did not take it, and the pump could not wait.
	if err := c.wakeup.SetReadDeadline(time.Time{}); err != nil {
		return &Error{Code: ErrInternal, Message: fmt.Sprintf("the descriptor of events cannot be waited for: %v", err)}
	}
	return nil
}

func (c *core) pump() {
	connection, err := c.wakeup.SyscallConn()
	if err != nil {
		return
	}
	// The poller tells of changes only: the descriptor is drained before every wait, and a change during that is remembered.
	_ = connection.Read(func(uintptr) bool { return !c.drain() })
}

// drain delivers all events there are; false when there will be no more.
func (c *core) drain() bool {
	c.taking.Lock()
	defer c.taking.Unlock()
	for {
		number := c.handle.number.Load()
		if c.batch == nil || number == 0 {
			return false
		}
		switch Code(c.batch.Take(number, c.deliver)) {
		case ErrTimeout:
			return true
		case ErrClosed, ErrInvalidHandle:
			return false
		}
		// No memory for an event: it is still there, and there may be some soon.
		time.Sleep(time.Millisecond)
	}
}

func (c *core) deliver(event *capi.Event) {
	c.mu.Lock()
	q := c.queues[event.ID]
	if event.Finish != nil {
		delete(c.queues, event.ID)
	}
	c.mu.Unlock()
	if q != nil {
		q.push(event)
	}
}

// open makes a queue before its request exists: events may come before the call that submits it returns.
func (c *core) open(ctx context.Context) (*queue, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.queues == nil {
		return nil, closed("engine")
	}
	c.lastID++
	q := newQueue(ctx, c, c.lastID)
	c.queues[q.id] = q
	return q, nil
}

func (c *core) forget(id uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.queues, id)
}

func (c *core) close() {
	number := c.handle.take()
	if number == 0 {
		return
	}
	capi.Inlay_engine_release(number)
	c.log.Release()
	if c.wakeup != nil {
		c.wakeup.Close()
	}
	c.taking.Lock()
	c.batch.Free()
	c.batch = nil
	c.taking.Unlock()
	c.mu.Lock()
	queues := c.queues
	c.queues = nil
	c.mu.Unlock()
	for _, q := range queues {
		q.end(nil, closed("engine"))
	}
}
