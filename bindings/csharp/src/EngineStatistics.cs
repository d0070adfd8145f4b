using System;
using Inlay.Native;

namespace Inlay
{
    /// <summary>What one call of <see cref="Engine.Step(TimeSpan)"/> did, over all of its steps.</summary>
    public struct StepResult
    {
        internal StepResult(inlay_step_info native)
        {
            Requests = (int)native.num_requests;
            PrefillTokens = (int)native.prefill_tokens;
            DecodeTokens = (int)native.decode_tokens;
            SampledTokens = (int)native.sampled_tokens;
            MoreWork = native.more_work != 0;
            Duration = Numbers.Time(native.duration_us);
            Predicted = Numbers.Time(native.predicted_us);
            Overshoot = Numbers.Time(native.overshoot_us);
        }

        /// <summary>Requests that took part.</summary>
        public int Requests { get; }
        /// <summary>Prompt tokens computed.</summary>
        public int PrefillTokens { get; }
        /// <summary>Generated tokens computed.</summary>
        public int DecodeTokens { get; }
        /// <summary>Tokens chosen.</summary>
        public int SampledTokens { get; }
        /// <summary>Another step now would do something.</summary>
        public bool MoreWork { get; }
        /// <summary>How long it took.</summary>
        public TimeSpan Duration { get; }
        /// <summary>How long it was expected to take.</summary>
        public TimeSpan Predicted { get; }
        /// <summary>How far it went past the budget; zero without one.</summary>
        public TimeSpan Overshoot { get; }
    }

    /// <summary>What an engine computes on.</summary>
    public sealed class DeviceInfo
    {
        internal DeviceInfo(inlay_device_info native)
        {
            Backend = (Backend)native.backend;
            Name = Utf8.Copy(native.name);
            MemoryBytes = Numbers.Long(native.memory_bytes);
            Processors = (int)native.num_processors;
            ComputeCapability = (int)native.compute_capability;
        }

        /// <summary>The CPU or CUDA.</summary>
        public Backend Backend { get; private set; }
        /// <summary>Its name.</summary>
        public string Name { get; private set; }
        /// <summary>Its physical memory.</summary>
        public long MemoryBytes { get; private set; }
        /// <summary>Multiprocessors of a GPU; threads on CPU.</summary>
        public int Processors { get; private set; }
        /// <summary>Of a GPU, times 10; 0 on CPU.</summary>
        public int ComputeCapability { get; private set; }
    }

    /// <summary>Of everything since the engine was made; percentiles to within 1/16. Times are microseconds.</summary>
    public struct Distribution
    {
        internal Distribution(inlay_distribution native)
        {
            Count = Numbers.Long(native.count);
            Sum = Numbers.Long(native.sum);
            P50 = Numbers.Long(native.p50);
            P90 = Numbers.Long(native.p90);
            P99 = Numbers.Long(native.p99);
            Max = Numbers.Long(native.max);
        }

        /// <summary>How many values.</summary>
        public long Count { get; }
        /// <summary>Their sum.</summary>
        public long Sum { get; }
        /// <summary>Half are at most this.</summary>
        public long P50 { get; }
        /// <summary>90 % are at most this.</summary>
        public long P90 { get; }
        /// <summary>99 % are at most this.</summary>
        public long P99 { get; }
        /// <summary>The largest.</summary>
        public long Max { get; }
    }

    /// <summary>Counters, memory and distributions of an engine. Counters run since it was made.</summary>
    public sealed class EngineStatistics
    {
        internal EngineStatistics(inlay_stats native)
        {
            Models = (int)native.num_models;
            Sessions = (int)native.num_sessions;
            RunningRequests = (int)native.running_requests;
            WaitingRequests = (int)native.waiting_requests;
            SubmittedRequests = Numbers.Long(native.submitted_requests);
            FinishedRequests = Numbers.Long(native.finished_requests);
            CancelledRequests = Numbers.Long(native.cancelled_requests);
            FailedRequests = Numbers.Long(native.failed_requests);
            Preemptions = Numbers.Long(native.preemptions);
            Evictions = Numbers.Long(native.evictions);
            Steps = Numbers.Long(native.steps);
            StepTime = Numbers.Time(native.step_us);
            ScheduleTime = Numbers.Time(native.schedule_us);
            PrefillTokens = Numbers.Long(native.prefill_tokens);
            DecodeTokens = Numbers.Long(native.decode_tokens);
            KvBlocksTotal = Numbers.Long(native.kv_blocks_total);
            KvBlocksUsed = Numbers.Long(native.kv_blocks_used);
            KvBlocksCached = Numbers.Long(native.kv_blocks_cached);
            MemoryBytes = Numbers.Long(native.memory_bytes);
            MemoryPeakBytes = Numbers.Long(native.memory_peak_bytes);
            MemoryBudgetBytes = Numbers.Long(native.memory_budget_bytes);
            WeightBytes = Numbers.Long(native.weight_bytes);
            KvBytes = Numbers.Long(native.kv_bytes);
            WorkspaceBytes = Numbers.Long(native.workspace_bytes);
            MappedBytes = Numbers.Long(native.mapped_bytes);
            HostCacheBytes = Numbers.Long(native.host_cache_bytes);
            HostCachePeakBytes = Numbers.Long(native.host_cache_peak_bytes);
            HostCacheBudgetBytes = Numbers.Long(native.host_cache_budget_bytes);
            DiskCacheBytes = Numbers.Long(native.disk_cache_bytes);
            DiskCacheBudgetBytes = Numbers.Long(native.disk_cache_budget_bytes);
            ExpertHostBytes = Numbers.Long(native.expert_host_bytes);
            LookupTokens = Numbers.Long(native.lookup_tokens);
            HitTokens = Numbers.Long(native.hit_tokens);
            QueueTime = new Distribution(native.queue_time_us);
            TimeToFirstToken = new Distribution(native.time_to_first_token_us);
            InterTokenTime = new Distribution(native.inter_token_time_us);
            RequestTime = new Distribution(native.request_time_us);
            StepTimes = new Distribution(native.step_time_us);
            ScheduleTimes = new Distribution(native.schedule_time_us);
            StepOvershoot = new Distribution(native.step_overshoot_us);
            StepTokens = new Distribution(native.step_tokens);
            // The distributions were read through pointers into it.
            GC.KeepAlive(native);
        }

        /// <summary>Models that are loaded.</summary>
        public int Models { get; private set; }
        /// <summary>Sessions there are.</summary>
        public int Sessions { get; private set; }
        /// <summary>Requests that take part in steps.</summary>
        public int RunningRequests { get; private set; }
        /// <summary>Requests that wait for that.</summary>
        public int WaitingRequests { get; private set; }
        /// <summary>Requests that were submitted.</summary>
        public long SubmittedRequests { get; private set; }
        /// <summary>Of these, ended on their own: stop or length.</summary>
        public long FinishedRequests { get; private set; }
        /// <summary>Of these, cancelled.</summary>
        public long CancelledRequests { get; private set; }
        /// <summary>Of these, failed.</summary>
        public long FailedRequests { get; private set; }
        /// <summary>How often a request lost its KV to others and was to be computed again.</summary>
        public long Preemptions { get; private set; }
        /// <summary>Cached KV blocks dropped for others.</summary>
        public long Evictions { get; private set; }
        /// <summary>Steps.</summary>
        public long Steps { get; private set; }
        /// <summary>Time inside steps.</summary>
        public TimeSpan StepTime { get; private set; }
        /// <summary>Of that, scheduling.</summary>
        public TimeSpan ScheduleTime { get; private set; }
        /// <summary>Prompt tokens computed.</summary>
        public long PrefillTokens { get; private set; }
        /// <summary>Generated tokens computed.</summary>
        public long DecodeTokens { get; private set; }
        /// <summary>KV blocks over all models.</summary>
        public long KvBlocksTotal { get; private set; }
        /// <summary>Of these, held by requests, pinned prefixes and reservations.</summary>
        public long KvBlocksUsed { get; private set; }
        /// <summary>Of these, kept for requests that begin alike.</summary>
        public long KvBlocksCached { get; private set; }
        /// <summary>Bytes in use now: weights, KV and scratch.</summary>
        public long MemoryBytes { get; private set; }
        /// <summary>The most there were.</summary>
        public long MemoryPeakBytes { get; private set; }
        /// <summary>The limit; 0: none.</summary>
        public long MemoryBudgetBytes { get; private set; }
        /// <summary>Bytes of weights that are not mapped.</summary>
        public long WeightBytes { get; private set; }
        /// <summary>Bytes of KV caches.</summary>
        public long KvBytes { get; private set; }
        /// <summary>Bytes of scratch.</summary>
        public long WorkspaceBytes { get; private set; }
        /// <summary>Bytes of weight files that are mapped, not counted in <see cref="MemoryBytes"/>.</summary>
        public long MappedBytes { get; private set; }
        /// <summary>Bytes of KV that host caches hold now; neither these nor those below are in <see cref="MemoryBytes"/>.</summary>
        public long HostCacheBytes { get; private set; }
        /// <summary>The most that the caches of the models loaded now have held.</summary>
        public long HostCachePeakBytes { get; private set; }
        /// <summary>Host memory that these caches took when their models were loaded.</summary>
        public long HostCacheBudgetBytes { get; private set; }
        /// <summary>Bytes of files of KV, those of earlier runs included.</summary>
        public long DiskCacheBytes { get; private set; }
        /// <summary>What these may take.</summary>
        public long DiskCacheBudgetBytes { get; private set; }
        /// <summary>Pinned host memory of experts that a GPU has no room for.</summary>
        public long ExpertHostBytes { get; private set; }
        /// <summary>Prompt tokens of requests that began.</summary>
        public long LookupTokens { get; private set; }
        /// <summary>Of these, tokens whose KV was cached.</summary>
        public long HitTokens { get; private set; }
        /// <summary>From submit to the first step.</summary>
        public Distribution QueueTime { get; private set; }
        /// <summary>From submit to the first token.</summary>
        public Distribution TimeToFirstToken { get; private set; }
        /// <summary>From one token of a request to its next.</summary>
        public Distribution InterTokenTime { get; private set; }
        /// <summary>From submit to the end.</summary>
        public Distribution RequestTime { get; private set; }
        /// <summary>Of single steps.</summary>
        public Distribution StepTimes { get; private set; }
        /// <summary>Of single steps' scheduling.</summary>
        public Distribution ScheduleTimes { get; private set; }
        /// <summary>How far steps with a budget went past it.</summary>
        public Distribution StepOvershoot { get; private set; }
        /// <summary>Tokens of single steps.</summary>
        public Distribution StepTokens { get; private set; }
    }
}
