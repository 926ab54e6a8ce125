package failover

import "time"

// Event is what became of a real server.
type Event struct {
	Server string
	// At and Back are when it was taken away, and when it was there again.
	At, Back time.Time
}

// Outcome is what clients have noticed of one event.
type Outcome struct {
	// Asked and Failed count the requests that were not over before the event.
	Asked, Failed int
	// Early counts those before it that failed, which nothing explains.
	Early int
	// Recovery is the time from the event to the start of the last request that
	// failed, 0 if none did: all that were sent later were answered.
	Recovery time.Duration
	// Slowest is the longest that a request took which was answered.
	Slowest time.Duration
	// Return is the time from when the server was there again until it has
	// answered a client; Returned says whether it has.
	Return   time.Duration
	Returned bool
	// By counts the answers by who gave them, from the client's first request
	// on; Errors the failed requests by why.
	By, Errors map[string]int
}

// Judge judges a client's requests, which are in the order of their starts.
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
