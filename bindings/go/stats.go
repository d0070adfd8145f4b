package inlay

import (
	"runtime"
	"time"

	"inlay.dev/go/inlay/internal/capi"
)

// Distribution of everything since the engine was made; percentiles to within 1/16.
type Distribution struct {
	Count, Sum, P50, P90, P99, Max uint64
}

// Stats of an engine.
type Stats struct {
	Models          int
	Sessions        int
	RunningRequests int
	WaitingRequests int

	// Since the engine was made.
	SubmittedRequests uint64
	FinishedRequests  uint64 // ended on their own
	CancelledRequests uint64
	FailedRequests    uint64
	Preemptions       uint64
	Evictions         uint64 // cached KV blocks dropped for others
	Steps             uint64
	StepTime          time.Duration
	ScheduleTime      time.Duration // of that, planning, reserving, building batches and committing
	PrefillTokens     uint64
	DecodeTokens      uint64
	LookupTokens      uint64 // prompt tokens of requests that began
	HitTokens         uint64 // of these, tokens whose KV was cached

	// Now.
	KVBlocksTotal  uint64
	KVBlocksUsed   uint64 // that requests, pinned prefixes and reservations hold
	KVBlocksCached uint64 // held by nobody, kept for requests that begin alike
	MemoryBytes    uint64 // its parts follow
	MemoryPeak     uint64
	MemoryBudget   uint64
	WeightBytes    uint64
	KVBytes        uint64
	WorkspaceBytes uint64
	MappedBytes    uint64 // not in MemoryBytes

	// Of the models loaded now, not in MemoryBytes.
	HostCacheBytes  uint64 // of KV that host caches hold
	HostCachePeak   uint64 // the most they have held
	HostCacheBudget uint64 // host memory that they took when their models were loaded
	DiskCacheBytes  uint64 // of files of KV, those of earlier runs included
	DiskCacheBudget uint64 // what these may take
	ExpertHostBytes uint64 // pinned host memory of experts that a GPU has no room for

	// In microseconds.
	QueueTime        Distribution // from submit to the first step
	TimeToFirstToken Distribution // from submit
	InterTokenTime   Distribution
	RequestTime      Distribution // from submit to the end
	StepTimes        Distribution
	ScheduleTimes    Distribution
	StepOvershoot    Distribution // of steps with a budget

	StepTokens Distribution // tokens
}

// Stats are the engine's counters.
func (e *Engine) Stats() (Stats, error) {
	defer runtime.KeepAlive(e)
	number, err := e.core.handle.get()
	if err != nil {
		return Stats{}, err
	}
	s := capi.NewInlay_stats()
	defer capi.DeleteInlay_stats(s)
	capi.Inlay_stats_init_sized(s, capi.SizeofStats)
	if err := call(func(object *uintptr) int32 { return capi.Inlay_engine_stats(number, s, object) }); err != nil {
		return Stats{}, err
	}
	return Stats{
		Models:            int(s.GetNum_models()),
		Sessions:          int(s.GetNum_sessions()),
		RunningRequests:   int(s.GetRunning_requests()),
		WaitingRequests:   int(s.GetWaiting_requests()),
		SubmittedRequests: s.GetSubmitted_requests(),
		FinishedRequests:  s.GetFinished_requests(),
		CancelledRequests: s.GetCancelled_requests(),
		FailedRequests:    s.GetFailed_requests(),
		Preemptions:       s.GetPreemptions(),
		Evictions:         s.GetEvictions(),
		Steps:             s.GetSteps(),
		StepTime:          duration(s.GetStep_us()),
		ScheduleTime:      duration(s.GetSchedule_us()),
		PrefillTokens:     s.GetPrefill_tokens(),
		DecodeTokens:      s.GetDecode_tokens(),
		LookupTokens:      s.GetLookup_tokens(),
		HitTokens:         s.GetHit_tokens(),
		KVBlocksTotal:     s.GetKv_blocks_total(),
		KVBlocksUsed:      s.GetKv_blocks_used(),
		KVBlocksCached:    s.GetKv_blocks_cached(),
		MemoryBytes:       s.GetMemory_bytes(),
		MemoryPeak:        s.GetMemory_peak_bytes(),
		MemoryBudget:      s.GetMemory_budget_bytes(),
		WeightBytes:       s.GetWeight_bytes(),
		KVBytes:           s.GetKv_bytes(),
		WorkspaceBytes:    s.GetWorkspace_bytes(),
		MappedBytes:       s.GetMapped_bytes(),
		HostCacheBytes:    s.GetHost_cache_bytes(),
		HostCachePeak:     s.GetHost_cache_peak_bytes(),
		HostCacheBudget:   s.GetHost_cache_budget_bytes(),
		DiskCacheBytes:    s.GetDisk_cache_bytes(),
		DiskCacheBudget:   s.GetDisk_cache_budget_bytes(),
		ExpertHostBytes:   s.GetExpert_host_bytes(),
		QueueTime:         distributionOf(s.GetQueue_time_us()),
		TimeToFirstToken:  distributionOf(s.GetTime_to_first_token_us()),
		InterTokenTime:    distributionOf(s.GetInter_token_time_us()),
		RequestTime:       distributionOf(s.GetRequest_time_us()),
		StepTimes:         distributionOf(s.GetStep_time_us()),
		ScheduleTimes:     distributionOf(s.GetSchedule_time_us()),
		StepOvershoot:     distributionOf(s.GetStep_overshoot_us()),
		StepTokens:        distributionOf(s.GetStep_tokens()),
	}, nil
}

func distributionOf(d capi.Inlay_distribution) Distribution {
	return Distribution{d.GetCount(), d.GetSum(), d.GetP50(), d.GetP90(), d.GetP99(), d.GetMax()}
}

// Metrics is all there is to count, in Prometheus' text format 0.0.4.
func (e *Engine) Metrics() (string, error) {
	text, err := e.metrics(int32(capi.INLAY_METRICS_PROMETHEUS))
	return string(text), err
}

// MetricsProto is the same as inlay.stats.EngineStats of api/proto/stats.proto, histograms included.
func (e *Engine) MetricsProto() ([]byte, error) {
	return e.metrics(int32(capi.INLAY_METRICS_PROTOBUF))
}

func (e *Engine) metrics(format int32) ([]byte, error) {
	defer runtime.KeepAlive(e)
	number, err := e.core.handle.get()
	if err != nil {
		return nil, err
	}
	return bytesOf(func(buffer, object *uintptr) int32 {
		return capi.Inlay_engine_metrics(number, format, buffer, object)
	})
}

// TraceStart records what steps, requests and KV blocks do, in a ring of the newest events (about 100 bytes each).
func (e *Engine) TraceStart(events int) error {
	defer runtime.KeepAlive(e)
	number, err := e.core.handle.get()
	if err != nil {
		return err
	}
	if events < 0 {
		return invalid("the number of events is %d, allowed: 1 to 1048576", events)
	}
	return call(func(object *uintptr) int32 { return capi.Inlay_engine_trace_start(number, events, object) })
}

// TraceTake is what was recorded since the start or the last take, as a trace that ui.perfetto.dev opens.
func (e *Engine) TraceTake(stop bool) ([]byte, error) {
	defer runtime.KeepAlive(e)
	number, err := e.core.handle.get()
	if err != nil {
		return nil, err
	}
	return bytesOf(func(buffer, object *uintptr) int32 {
		return capi.Inlay_engine_trace_take(number, flag(stop), buffer, object)
	})
}
