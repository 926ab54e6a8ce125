package failure

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"fairlead/internal/gateway/middleware/base"
	"fairlead/internal/model/gateway"
)

// errorPages replaces responses of some statuses by pages of a service.
type errorPages struct {
	*gateway.Errors
	statuses []base.StatusRange
	rewrites map[base.StatusRange]int
	service  http.Handler
}

// NewErrors replaces responses of some statuses by pages of a service. The client gets
// the page with the first response's status, or the one that statusRewrites has for it.
func NewErrors(b *base.Builder, v *gateway.Errors) (base.Func, error) {
	e := &errorPages{Errors: v, rewrites: map[base.StatusRange]int{}}
	if len(v.Status) == 0 || v.Service == "" || b.Service == nil {
		return nil, errors.New("set status and service: the statuses to replace, and the service that has the pages")
	}
	var err error
	if e.statuses, err = base.ParseStatuses(v.Status); err != nil {
		return nil, err
	}
	for from, to := range v.StatusRewrites {
		ranges, err := base.ParseStatuses([]string{from})
		if err != nil {
			return nil, err
		}
		if to < 200 || to > 599 {
			return nil, fmt.Errorf("rewrite status %s to %d: want a status between 200 and 599", from, to)
		}
		for _, r := range ranges {
			e.rewrites[r] = to
		}
	}
	b.Depends = true
	if e.service, err = b.Service(v.Service); err != nil {
		return nil, fmt.Errorf("use service %q: %w", v.Service, err)
	}
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { e.serve(w, r, next) })
	}, nil
}

func (e *errorPages) serve(w http.ResponseWriter, r *http.Request, next http.Handler) {
	out := base.NewCatchWriter(w, func(status int) bool { return base.HasStatus(e.statuses, status) })
	original := *r // The middlewares after this one may change the request.
	original.Header = r.Header.Clone()
	next.ServeHTTP(out, r)
	if out.Caught == 0 {
		return
	}
	page, err := e.request(&original, out.Caught)
	if err != nil {
		base.Refuse(w, out.Caught)
		return
	}
	e.service.ServeHTTP(&base.HeadWriter{ResponseWriter: w, Before: func(int) {}, Force: e.status(out.Caught)}, page)
}

// status returns the status that the client gets. The narrowest range wins.
func (e *errorPages) status(caught int) int {
	status, width := caught, 1000
	for r, to := range e.rewrites {
		if w := r[1] - r[0]; base.HasStatus([]base.StatusRange{r}, caught) && w < width {
			status, width = to, w
		}
	}
	return status
}

// request returns the request for a page: a GET without a body and without conditions.
func (e *errorPages) request(r *http.Request, caught int) (*http.Request, error) {
	from := base.ForwardedProto(r) + "://" + r.Host + r.URL.RequestURI()
	target := strings.NewReplacer("{status}", strconv.Itoa(e.status(caught)),
		"{originalStatus}", strconv.Itoa(caught), "{url}", url.QueryEscape(from)).Replace(e.Query)
	u, err := url.ParseRequestURI(base.WithSlash(target))
	if err != nil {
		return nil, err
	}
	page := r.Clone(r.Context())
	page.Method, page.URL, page.RequestURI = http.MethodGet, u, u.RequestURI()
	page.Body, page.ContentLength, page.TransferEncoding = http.NoBody, 0, nil
	base.RemoveHopHeaders(page.Header)
	for _, name := range []string{"Content-Length", "Content-Type", "Content-Encoding", "Expect", "Range", "If-Match",
		"If-None-Match", "If-Modified-Since", "If-Unmodified-Since", "If-Range"} {
		page.Header.Del(name)
	}
	if len(e.ErrorRequestHeaders) > 0 {
		maps.DeleteFunc(page.Header, func(name string, _ []string) bool {
			return !base.ContainsFold(e.ErrorRequestHeaders, name)
		})
	}
	return page, nil
}
