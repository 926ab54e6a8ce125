package visitor

import (
	"errors"
	"sync"
	"time"

	"fairlead/internal/lab/result"
	"fairlead/internal/lab/website"
)

// connections is how many connections a browser opens at most with HTTP/1.1.
const connections = 6

// Visit is the result of one visit. All times are from the begin of the schedule.
type Visit struct {
	Kind Kind
	// Intended is when it was to start, Started when it did.
	Intended, Started time.Duration
	// First is when the head of the first response arrived, 0 if none did. Ended is
	// when the visit was over.
	First, Ended time.Duration
	// Requests counts the requests, Failed those of them without a complete and
	// correct response. Bytes counts those of correct bodies.
	Requests, Failed int
	Bytes            int64
	// Err is the reason of the first failure, empty if the visit succeeded.
	Err string `json:",omitempty"`
}

// Took returns the time from the intended start to the end.
func (v Visit) Took() time.Duration { return v.Ended - v.Intended }

// record collects the results of a visit's requests.
type record struct {
	mu    sync.Mutex
	begin time.Time
	Visit
}

// over counts a request that is over.
func (r *record) over(bytes int, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Requests++
	if err == nil {
		r.Bytes += int64(bytes)
		return
	}
	r.Failed++
	if r.Err == "" {
		r.Err = result.Reason(err)
	}
}

// arrived is called when the head of a response has arrived.
func (r *record) arrived() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.First == 0 {
		r.First = time.Since(r.begin)
	}
}

// fetch fetches a resource and reports whether the connection can be used further.
func (r *record) fetch(f fetcher, path string) bool {
	n, err := f.fetch(path, r.arrived)
	r.over(n, err)
	return err == nil
}

// visit makes one visit.
func (t *tourist) visit(begin time.Time, s Start) Visit {
	r := &record{begin: begin, Visit: Visit{Kind: s.Kind, Intended: s.At, Started: time.Since(begin)}}
	page := t.site.Pages[s.Page]
	switch s.Kind {
	case Crawl:
		t.inTurn(r, t.everything())
	case BrowserH1:
		t.browse1(r, page)
	case BrowserH2:
		t.browse2(r, page)
	}
	r.Ended = time.Since(begin)
	return r.Visit
}

// everything lists all resources once, in the order in which a crawler finds them.
func (t *tourist) everything() []string {
	var all []string
	seen := map[string]bool{}
	for _, p := range t.site.Pages {
		for _, path := range append([]string{p.Path}, p.Assets...) {
			if !seen[path] {
				seen[path] = true
				all = append(all, path)
			}
		}
	}
	return all
}

// inTurn fetches resources one after the other over one connection, up to the first
// failure.
func (t *tourist) inTurn(r *record, paths []string) {
	f, err := t.connect1()
	if err != nil {
		r.over(0, err)
		return
	}
	defer f.Close()
	for _, path := range paths {
		if !r.fetch(f, path) {
			return
		}
	}
}

// browse1 fetches a page, then its assets over several connections. The first one is
// that of the page.
func (t *tourist) browse1(r *record, page website.Page) {
	f, err := t.connect1()
	if err != nil {
		r.over(0, err)
		return
	}
	defer f.Close()
	if !r.fetch(f, page.Path) {
		return
	}
	assets := make(chan string, len(page.Assets))
	for _, path := range page.Assets {
		assets <- path
	}
	close(assets)
	var all sync.WaitGroup
	for i := range min(connections, len(page.Assets)) {
		all.Go(func() {
			f := f
			if i > 0 {
				var err error
				if f, err = t.connect1(); err != nil {
					r.over(0, err)
					return
				}
				defer f.Close()
			}
			for path := range assets {
				if !r.fetch(f, path) {
					return
				}
			}
		})
	}
	all.Wait()
	for range assets { // what no connection has fetched
		r.over(0, errNotSent)
	}
}

// errNotSent is the error of requests whose connections failed before.
var errNotSent = errors.New("not sent: the connections have failed")

// browse2 fetches a page, then its assets at the same time over the same connection.
func (t *tourist) browse2(r *record, page website.Page) {
	f, err := t.connect2()
	if err != nil {
		r.over(0, err)
		return
	}
	defer f.Close()
	if !r.fetch(f, page.Path) {
		return
	}
	var all sync.WaitGroup
	for _, path := range page.Assets {
		all.Go(func() { r.fetch(f, path) })
	}
	all.Wait()
}
