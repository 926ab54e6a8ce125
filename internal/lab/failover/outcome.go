package failover

import "time"

// Event is a failure or removal of a real server, with its return.
type Event struct {
	Server string
	// At and Back are when it failed or was removed, and when it was available
	// again.
	At, Back time.Time
}

// Outcome is what clients noticed of one event.
type Outcome struct {
	// Asked and Failed count the requests that were not over before the event.
	Asked, Failed int
	// Early counts the requests before the event that failed; the event does not
	// explain them.
	Early int
	// Recovery is the time from the event to the start of the last failed request,
	// 0 if none failed. All later requests were answered.
	Recovery time.Duration
	// Slowest is the longest duration of a request that was answered.
	Slowest time.Duration
	// Return is the time from the server's return until it has answered a client;
	// Returned is false if it never did.
	Return   time.Duration
	Returned bool
	// By counts the answers per server, from the client's first request on; Errors
	// counts the failed requests per reason.
	By, Errors map[string]int
}

// Judge evaluates a client's requests, which must be sorted by start.
func Judge(all []Request, e Event) Outcome {
	o := Outcome{By: map[string]int{}, Errors: map[string]int{}}
	at, back := e.At.UnixNano(), e.Back.UnixNano()
	for _, r := range all {
		if r.Err == "" {
			o.By[r.By]++
		}
		if r.End() < at {
			if r.Err != "" {
				o.Early++
			}
			continue
		}
		o.Asked++
		if r.Err != "" {
			o.Failed++
			o.Errors[r.Err]++
			o.Recovery = max(o.Recovery, time.Duration(r.Start-at))
			continue
		}
		o.Slowest = max(o.Slowest, time.Duration(r.Took))
		if !o.Returned && r.Start >= back && r.By == e.Server {
			o.Returned, o.Return = true, time.Duration(r.End()-back)
		}
	}
	return o
}
