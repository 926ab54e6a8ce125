// Package failure has the middlewares that react to failures of servers: retry, circuitBreaker, errors.
//
// It does not choose servers: load balancers do.
package failure

import (
	"errors"
	"net/http"
	"slices"
	"time"

	"fairlead/internal/gateway/middleware/base"
	"fairlead/internal/gateway/middleware/outcome"
	"fairlead/internal/model/gateway"
)

// maxRetryBody is the default limit of bodies that are kept for another attempt.
const maxRetryBody = 2 << 20

// retry sends requests again.
type retry struct {
	*gateway.Retry
	statuses []base.StatusRange
	limit    int64
	now      func() time.Time
}

// NewRetry sends a request again if the proxy got no response from its server, or one
// with a configured status, and the client got nothing yet. It does so only where that is
// safe: nothing of the request has reached the server, or its method is idempotent (RFC
// 9110, section 9.2.2), or the user allows others; and its body, if there is one, is
// kept and does not wait for the client. Bodies are streamed to the first server while they are kept.
func NewRetry(b *base.Builder, v *gateway.Retry) (base.Func, error) {
	t := &retry{Retry: v, limit: maxRetryBody, now: b.Now}
	switch {
	case v.Attempts <= 0:
		return nil, errors.New("set attempts to the number of attempts")
	case v.DisableRetryOnNetworkError && len(v.Status) == 0:
		return nil, errors.New("set status, or enable retries on network errors: there is no reason to retry")
	}
	if v.MaxRequestBodyBytes != nil {
		t.limit = *v.MaxRequestBodyBytes
	}
	if len(v.Status) > 0 {
		var err error
		if t.statuses, err = base.ParseStatuses(v.Status); err != nil {
			return nil, err
		}
	}
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { t.serve(w, r, next) })
	}, nil
}

func (t *retry) serve(w http.ResponseWriter, r *http.Request, next http.Handler) {
	var body *replayBody
	if r.Body != nil && r.Body != http.NoBody {
		body = &replayBody{limit: t.limit, source: r.Body}
	}
	begin := t.now()
	attempt := &outcome.Attempt{}
	for {
		var again *http.Request
		attempt, again = attempt.Next(r)
		out := attemptWriter{}
		if body != nil {
			out.body = body.reader()
			again.Body = out.body
		}
		out.CatchWriter = base.NewCatchWriter(w, func(status int) bool {
			timely := t.Timeout <= 0 || t.now().Sub(begin) < t.Timeout
			return outcome.FaultOf(w) != outcome.ClientFault && attempt.Number < t.Attempts && timely &&
				t.worthwhile(attempt, r.Method, status) && r.Context().Err() == nil && (body == nil || body.stop())
		})
		next.ServeHTTP(out, again)
		if out.Caught == 0 {
			return
		}
		if !base.Sleep(r, t.wait(attempt.Number)) {
			base.Refuse(w, out.Caught) // For the log: the client has gone.
			return
		}
	}
}

// attemptWriter is the response of one attempt.
type attemptWriter struct {
	*base.CatchWriter
	// body is the attempt's, nil if the request has none.
	body *replayReader
}

// SetReadDeadline limits how long a read of the request's body lasts. At its end an attempt interrupts such reads;
// that must not reach the client's connection if the next attempt reads from there.
func (w attemptWriter) SetReadDeadline(deadline time.Time) error {
	if w.body != nil && w.body.stopped() {
		return nil
	}
	return http.NewResponseController(w.ResponseWriter).SetReadDeadline(deadline)
}

// worthwhile returns whether another attempt is safe and may have another result.
func (t *retry) worthwhile(attempt *outcome.Attempt, method string, status int) bool {
	idempotent := t.RetryNonIdempotentMethod || slices.Contains([]string{http.MethodGet, http.MethodHead,
		http.MethodOptions, http.MethodTrace, http.MethodPut, http.MethodDelete}, method)
	if attempt.Failed && !t.DisableRetryOnNetworkError && (!attempt.Sent || idempotent) {
		return true
	}
	return idempotent && base.HasStatus(t.statuses, status)
}

// wait returns the time before the attempt after number: it grows by half each time, up
// to twice the configured interval.
func (t *retry) wait(number int) time.Duration {
	wait := t.InitialInterval
	for range min(number-1, 2) {
		wait += wait / 2
	}
	return min(wait, 2*t.InitialInterval)
}
