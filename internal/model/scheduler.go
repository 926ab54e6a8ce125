package model

// Scheduler is how a real server is chosen for a new flow. The names are those of
// IPVS (ipvsadm(8)).
type Scheduler string

// The schedulers. The empty one is DefaultScheduler.
const (
	MaglevHashing           Scheduler = "mh"
	SourceHashing           Scheduler = "sh"
	RoundRobin              Scheduler = "rr"
	WeightedRoundRobin      Scheduler = "wrr"
	LeastConnection         Scheduler = "lc"
	WeightedLeastConnection Scheduler = "wlc"
	ShortestExpectedDelay   Scheduler = "sed"
	NeverQueue              Scheduler = "nq"

	DefaultScheduler = MaglevHashing
)

// FlowKey is what of a flow a scheduler hashes.
type FlowKey byte

// The keys: nothing, the client's address, the client's address and port.
const (
	NoKey FlowKey = iota
	ClientKey
	FullKey
)

// SchedulerTraits are the properties of a scheduler that other packages depend on. A
// scheduler with the zero value takes the real servers in turn.
type SchedulerTraits struct {
	// Hashes is what of a flow decides on its real server.
	Hashes FlowKey
	// Weighted is true if a real server with twice the weight gets twice the flows. A
	// scheduler that hashes heeds weights anyway.
	Weighted bool
	// CountsFlows is true if the choice depends on the flows that each real server has.
	CountsFlows bool
	// OnlyIPVS is true if only the data plane ipvs computes the choice.
	OnlyIPVS bool
}

// schedulers has one row per scheduler. The position of a row is the scheduler's number in
// the eBPF maps: add new ones at the end.
var schedulers = []struct {
	name   Scheduler
	traits SchedulerTraits
}{
	{MaglevHashing, SchedulerTraits{Hashes: FullKey}},
	{SourceHashing, SchedulerTraits{Hashes: ClientKey}},
	{RoundRobin, SchedulerTraits{}},
	{WeightedRoundRobin, SchedulerTraits{Weighted: true}},
	{LeastConnection, SchedulerTraits{CountsFlows: true}},
	{WeightedLeastConnection, SchedulerTraits{CountsFlows: true, Weighted: true}},
	{ShortestExpectedDelay, SchedulerTraits{CountsFlows: true, Weighted: true, OnlyIPVS: true}},
	{NeverQueue, SchedulerTraits{CountsFlows: true, Weighted: true, OnlyIPVS: true}},
}

// Schedulers returns the names of the schedulers with a trait.
func Schedulers(has func(SchedulerTraits) bool) []Scheduler {
	var names []Scheduler
	for _, row := range schedulers {
		if has(row.traits) {
			names = append(names, row.name)
		}
	}
	return names
}

// SchedulerWith returns the first scheduler with exactly these traits, or "".
func SchedulerWith(traits SchedulerTraits) Scheduler {
	names := Schedulers(func(t SchedulerTraits) bool { return t == traits })
	return append(names, "")[0]
}

// AllSchedulers returns the names of all schedulers.
func AllSchedulers() []Scheduler {
	return Schedulers(func(SchedulerTraits) bool { return true })
}

// Traits returns the scheduler's traits. An unknown scheduler has the zero value.
func (s Scheduler) Traits() SchedulerTraits {
	for _, row := range schedulers {
		if row.name == s {
			return row.traits
		}
	}
	return SchedulerTraits{}
}
