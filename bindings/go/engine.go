package inlay

import (
	"runtime"
	"time"

	"inlay.dev/go/inlay/internal/capi"
)

// Backend is what an engine computes on.
type Backend int32

// BackendAuto takes a GPU where there is one.
const (
	BackendAuto Backend = 0
	BackendCPU  Backend = 1
	BackendCUDA Backend = 2
)

// LogLevel of a message. Those above an engine's level are dropped.
type LogLevel int32

// LogWarning is the default.
const (
	LogError   LogLevel = -1
	LogWarning LogLevel = 0
	LogInfo    LogLevel = 1
	LogDebug   LogLevel = 2
)

// EngineOptions of NewEngine. The zero value has the defaults.
type EngineOptions struct {
	Backend Backend
	// HostDriven: nothing is computed but in Step, on the goroutine that calls it: for games and the like. Otherwise a thread of
	// the engine's own works while there is work.
	HostDriven      bool
	Threads         int           // of CPU kernels; 0: one per core
	MemoryBudget    uint64        // bytes of weights, KV and scratch together; 0: no limit
	MaxBatchTokens  int           // computed in one step; 0: 512
	MaxRunning      int           // requests that take part in steps; 0: 256
	MaxQueue        int           // requests that wait for that; 0: 65536
	NoPrefixSharing bool          // only a session and its forks share, so that timing tells nobody what another has asked
	MaxPrefillChunk int           // prompt tokens of one request in a step; 0: MaxBatchTokens
	TPOTTarget      time.Duration // prompts delay running generations only as far as a token stays within it; 0: no target
	Starvation      time.Duration // who waited this long goes first; 0: 10 s; negative: nobody does
	GPU             int           // CUDA's number of it
	BatchInvariant  bool          // on CUDA too, as on CPU always, a request's tokens do not depend on what else runs
	LogLevel        LogLevel
	// Log gets what the library has to say, on any goroutine; it must not call methods of the engine. A panic in it is dropped.
	Log func(level LogLevel, message string)
}

// Engine has the device, its memory and the scheduler that batches every request.
type Engine struct {
	core *core
}

// NewEngine makes one; Close it. options may be nil.
func NewEngine(options *EngineOptions) (*Engine, error) {
	if err := checkABI(); err != nil {
		return nil, err
	}
	if options == nil {
		options = &EngineOptions{}
	}
	o := capi.NewInlay_engine_options()
	defer capi.DeleteInlay_engine_options(o)
	capi.Inlay_engine_options_init_sized(o, capi.SizeofEngineOptions)
	var n narrow
	o.SetBackend(int32(options.Backend))
	if !options.HostDriven {
		o.SetDrive(int32(capi.INLAY_DRIVE_THREAD))
	}
	o.SetNum_threads(n.int32("Threads", options.Threads))
	o.SetMemory_budget_bytes(options.MemoryBudget)
	if options.MaxBatchTokens != 0 {
		o.SetMax_batch_tokens(n.uint32("MaxBatchTokens", options.MaxBatchTokens))
	}
	if options.MaxRunning != 0 {
		o.SetMax_running(n.uint32("MaxRunning", options.MaxRunning))
	}
	if options.MaxQueue != 0 {
		o.SetMax_queue(n.uint32("MaxQueue", options.MaxQueue))
	}
	o.SetPrefix_sharing(uint32(flag(!options.NoPrefixSharing)))
	o.SetMax_prefill_chunk(n.uint32("MaxPrefillChunk", options.MaxPrefillChunk))
	o.SetTpot_target_us(n.micros("TPOTTarget", options.TPOTTarget))
	if options.Starvation < 0 {
		o.SetStarvation_us(0)
	} else if options.Starvation > 0 {
		o.SetStarvation_us(n.micros("Starvation", options.Starvation))
	}
	o.SetGpu(n.uint32("GPU", options.GPU))
	o.SetBatch_invariant(uint32(flag(options.BatchInvariant)))
	o.SetLog_level(int32(options.LogLevel) + 1)
	if n.err != nil {
		return nil, n.err
	}
	var log capi.Callback
	if f := options.Log; f != nil {
		log = capi.LogCallback(func(level int32, message string) { f(LogLevel(level-1), message) })
		o.SetLog(log.Function)
		o.SetLog_user(log.User)
	}
	var number, object uintptr
	if err := check(capi.Inlay_engine_create(o, &number, &object), &object); err != nil {
		log.Release()
		return nil, err
	}
	core, err := newCore(number, options.HostDriven, log)
	if err != nil {
		return nil, err
	}
	e := &Engine{core}
	// Not here: closing waits for the step in flight, and finalizers wait for each other.
	runtime.SetFinalizer(e, func(e *Engine) { go e.core.close() })
	return e, nil
}

// Close ends all work at once, waits for the step in flight, and frees the engine's memory. Streams end with ErrClosed, and so
// do later calls on what came from the engine. It returns nil, also when it was closed before.
func (e *Engine) Close() error {
	runtime.SetFinalizer(e, nil)
	e.core.close()
	return nil
}

// StepInfo is what Step did.
type StepInfo struct {
	Requests      int // that took part
	PrefillTokens int // prompt tokens computed
	DecodeTokens  int // generated tokens computed
	SampledTokens int // tokens chosen
	MoreWork      bool
	Duration      time.Duration
	Predicted     time.Duration // what was expected
	Overshoot     time.Duration // past the budget
}

// Step computes, in a host-driven engine: until the budget is used up or there is nothing to do; with a budget of 0, exactly one
// step. What came of it waits in the streams when it returns. ErrInvalidState in an engine that is not host-driven, and while
// another goroutine is stepping.
func (e *Engine) Step(budget time.Duration) (StepInfo, error) {
	defer runtime.KeepAlive(e)
	number, err := e.core.handle.get()
	if err != nil {
		return StepInfo{}, err
	}
	var n narrow
	micros := n.micros("budget", budget)
	if n.err != nil {
		return StepInfo{}, n.err
	}
	var object uintptr
	info, status := capi.Step(number, micros, &object)
	if err := check(status, &object); err != nil {
		return StepInfo{}, err
	}
	e.core.drain()
	return StepInfo{
		Requests:      int(info.Requests),
		PrefillTokens: int(info.PrefillTokens),
		DecodeTokens:  int(info.DecodeTokens),
		SampledTokens: int(info.SampledTokens),
		MoreWork:      info.MoreWork != 0,
		Duration:      duration(info.Micros),
		Predicted:     duration(info.PredictedMicros),
		Overshoot:     duration(info.OvershootMicros),
	}, nil
}

// SetMemoryBudget says what weights, KV and scratch may take together from now on; 0: no limit. Caches shrink at once or at the
// end of the step in flight, and grow back when there is room again; no session and no request is lost, what does not fit waits.
// ErrResourceExhausted, with nothing changed, below what weights and scratch take.
func (e *Engine) SetMemoryBudget(bytes uint64) error {
	defer runtime.KeepAlive(e)
	number, err := e.core.handle.get()
	if err != nil {
		return err
	}
	return call(func(object *uintptr) int32 { return capi.Inlay_engine_set_memory_budget(number, 0, bytes, object) })
}

// Device is what an engine computes on.
type Device struct {
	Backend           Backend
	Name              string
	MemoryBytes       uint64 // physical
	Processors        int    // multiprocessors of a GPU; threads on CPU
	ComputeCapability int    // of a GPU, times 10; 0 on CPU
}

// Device tells what the engine computes on.
func (e *Engine) Device() (Device, error) {
	defer runtime.KeepAlive(e)
	number, err := e.core.handle.get()
	if err != nil {
		return Device{}, err
	}
	info := capi.NewInlay_device_info()
	defer capi.DeleteInlay_device_info(info)
	capi.Inlay_device_info_init(info)
	if err := call(func(object *uintptr) int32 { return capi.Inlay_engine_device(number, info, object) }); err != nil {
		return Device{}, err
	}
	return Device{
		Backend:           Backend(info.GetBackend()),
		Name:              info.GetName(),
		MemoryBytes:       info.GetMemory_bytes(),
		Processors:        int(info.GetNum_processors()),
		ComputeCapability: int(info.GetCompute_capability()),
	}, nil
}

// MeasureCopy times copies of `bytes` (1 MiB to 4 GiB) within the device's memory for about 20 ms: bytes read plus bytes written
// a second.
func (e *Engine) MeasureCopy(bytes uint64) (float64, error) {
	defer runtime.KeepAlive(e)
	number, err := e.core.handle.get()
	if err != nil {
		return 0, err
	}
	var rate float64
	err = call(func(object *uintptr) int32 { return capi.Inlay_engine_measure_copy(number, bytes, &rate, object) })
	return rate, err
}

func duration(micros uint64) time.Duration { return time.Duration(micros) * time.Microsecond }
