package dashboard

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"fairlead/internal/frontend/dashboard/page"
)

// The limits of streams.
const (
	// maxStreams is the number of streams of all viewers.
	maxStreams = 32
	// tick is the least time between two events of a stream.
	tick = time.Second
	// beat is how long a stream is silent at most.
	beat = 15 * time.Second
	// writeLimit is how long a client may take to accept an event. A slower one is disconnected, and gets the whole
	// page when it connects again.
	writeLimit = 10 * time.Second
)

// streams are the open streams, and the renderings that they share.
type streams struct {
	mu     sync.Mutex
	open   int
	ended  chan struct{}
	over   bool
	shared map[string]*shared
}

// shared is a page that at least one stream shows.
type shared struct {
	mu       sync.Mutex
	rendered page.Rendered
	// event has the rendering as an event.
	event   string
	viewers int
}

func (s *streams) init() {
	s.ended = make(chan struct{})
	s.shared = map[string]*shared{}
}

func (s *streams) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.over {
		s.over = true
		close(s.ended)
	}
}

// enter counts a stream of a page. Returns nil if there are too many, or no more.
func (s *streams) enter(of string) *shared {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over || s.open >= maxStreams {
		return nil
	}
	s.open++
	if s.shared[of] == nil {
		s.shared[of] = &shared{}
	}
	s.shared[of].viewers++
	return s.shared[of]
}

// leave ends what enter has begun.
func (s *streams) leave(of string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open--
	if s.shared[of].viewers--; s.shared[of].viewers == 0 {
		delete(s.shared, of)
	}
}

// render returns the newest rendering, and its event. It renders only if the page reads another value than before.
func (p *shared) render(with func() (page.Rendered, error)) (page.Rendered, string, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.rendered.Newest != nil {
		version, read := p.rendered.Newest()
		if version == p.rendered.Version {
			p.rendered.Read = read
			return p.rendered, p.event, nil
		}
	}
	r, err := with()
	if err == nil && r.Etag != p.rendered.Etag {
		p.event = "id: " + r.Etag + "\nevent: page\n" + data(string(r.Main))
	}
	p.rendered = r
	return r, p.event, err
}

// stream sends the page again and again, as server-sent events: "page" with new HTML, whose id is that of the
// content, and "same" with the time of the reading.
func (d *Dashboard) stream(w http.ResponseWriter, r *http.Request) {
	of := r.URL.Query().Get("page")
	p, query, ok := d.parsed(of)
	if !ok {
		http.Error(w, "There is no such page.", http.StatusNotFound)
		return
	}
	with := d.streams.enter(of)
	if with == nil {
		http.Error(w, "Too many pages are kept up to date: close some.", http.StatusServiceUnavailable)
		return
	}
	defer d.streams.leave(of)
	s := sender{ResponseWriter: w, control: http.NewResponseController(w), have: r.Header.Get("Last-Event-ID"),
		sent: time.Now()}
	if s.have == "" {
		s.have = r.URL.Query().Get("have")
	}
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no")
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	for {
		rendered, event, err := with.render(func() (page.Rendered, error) {
			return d.site.Render(r.Context(), p, query)
		})
		if err != nil {
			d.opt.Log.Error("show the dashboard", "error", err)
			return
		}
		if err := s.send(rendered, event); err != nil || !rendered.Live {
			return // the client is gone, or too slow
		}
		select {
		case <-ticker.C:
		case <-r.Context().Done():
			return
		case <-d.streams.ended:
			return
		}
	}
}

// sender sends the events of one stream.
type sender struct {
	http.ResponseWriter
	control *http.ResponseController
	// have identifies the content that the client has, and read is the time of the reading that it shows.
	have string
	read time.Time
	sent time.Time
}

// send sends what the client does not have: the event with the page, or the time of the reading.
func (s *sender) send(r page.Rendered, event string) error {
	switch {
	case r.Etag != s.have:
		s.have, s.read = r.Etag, r.Read
		return s.event(event)
	case !r.Read.Equal(s.read) || time.Since(s.sent) >= beat:
		s.read = r.Read
		return s.event("event: same\n" + data(r.Read.UTC().Format(time.RFC3339)))
	}
	return nil
}

// event writes an event within the time limit.
func (s *sender) event(text string) error {
	if err := s.control.SetWriteDeadline(time.Now().Add(writeLimit)); err != nil {
		return fmt.Errorf("limit the time of an event: %w", err)
	}
	if _, err := io.WriteString(s, text+"\n"); err != nil {
		return err
	}
	s.sent = time.Now()
	return s.control.Flush()
}

// data writes a text as the lines of an event.
func data(text string) string {
	var b strings.Builder
	for line := range strings.Lines(strings.ReplaceAll(text, "\r", "")) {
		b.WriteString("data: " + strings.TrimSuffix(line, "\n") + "\n")
	}
	return b.String()
}
