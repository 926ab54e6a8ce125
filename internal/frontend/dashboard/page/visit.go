package page

import (
	"context"
	"fmt"
	"html/template"
	"net/url"
	"time"

	"fairlead/internal/escape"
	"fairlead/internal/frontend/admin"
	"fairlead/internal/frontend/dashboard/source"
	"fairlead/internal/frontend/dashboard/table"
)

// Visit is one rendering of a page.
type Visit struct {
	*Site
	Context context.Context
	Query   url.Values

	page Page
	now  time.Time
	// unread are texts about what could not be read.
	unread []string
	// gone is set if the daemon does not answer, waiting if a value is not there yet, and old if one is from before a
	// failure.
	gone, waiting bool
	old           time.Time
	oldest        time.Time
	version       uint64
	refresh       []func() source.Status
	// patient ends when the page must not wait for readings any longer.
	patient context.Context
}

// patience is how long a page waits for the readings of its values.
const patience = 200 * time.Millisecond

// get returns the value of a source for the page, and false if there is none yet. what names it in texts.
func get[T any](v *Visit, s *source.Source[T], what string) (T, bool) {
	value, status := s.Get(v.patient)
	return value, v.note(status, s.Refresh, what)
}

// derive returns what a function makes of the value of a source, as get does (source.Derive). The function has a name,
// and must not depend on the visit.
func derive[T, D any](v *Visit, s *source.Source[T], what, name string, of func(T) D) (D, bool) {
	value, status := source.Derive(v.patient, s, name, of)
	return value, v.note(status, s.Refresh, what)
}

// note notes how old a value on the page is. It reports whether there is a value.
func (v *Visit) note(s source.Status, refresh func() source.Status, what string) bool {
	v.refresh = append(v.refresh, refresh)
	v.version += s.Version
	if s.Err != nil {
		v.failed(s.Err, what, s.At)
	}
	if s.At.IsZero() {
		v.waiting = v.waiting || s.Err == nil
		return false
	}
	if v.oldest.IsZero() || s.At.Before(v.oldest) {
		v.oldest = s.At
	}
	return true
}

// failed notes that a value could not be read. The page shows the one of the given time, if that is not zero.
func (v *Visit) failed(err error, what string, at time.Time) {
	if !at.IsZero() && (v.old.IsZero() || at.Before(v.old)) {
		v.old = at
	}
	if admin.Gone(err) {
		v.gone = true
		return
	}
	v.unread = append(v.unread, escape.Line(what+": "+err.Error()))
}

// state says in a sentence whether the page is up to date, and the class of that sentence.
func (v *Visit) state() (text, class string) {
	why := "the daemon does not answer"
	if !v.gone {
		why = "not everything could be read"
	}
	switch {
	case !v.old.IsZero():
		return fmt.Sprintf("Stale since %s: %s. What is below is from then.", v.old.Local().Format(time.TimeOnly),
			why), "stale"
	case v.gone:
		return "The daemon does not answer: start it with `systemctl start fairlead` or `fairlead daemon`.", "stale"
	case len(v.unread) > 0:
		return "Not everything could be read.", "stale"
	case v.waiting:
		return "The host is being read. Reload the page in a moment.", "waiting"
	case len(v.refresh) == 0:
		return "This page reads nothing that changes by itself.", "live"
	}
	if !hasDaemon(v.Site) {
		return "The gateway answers.", "live"
	}
	return "The daemon answers.", "live"
}

// read says when the oldest value on the page was read.
func (v *Visit) read() template.HTML {
	if v.oldest.IsZero() {
		return ""
	}
	return template.HTML(`<p class="read">Read ` + table.ReadAge(v.oldest) + ` ago.</p>`)
}

// redraw is how long a page stays whose values do not change: its charts and the times that are left on it do.
const redraw = 10 * time.Second

// newest returns the function Newest of the rendering.
func (v *Visit) newest() func() (version uint64, read time.Time) {
	refresh, now := v.refresh, v.now
	return func() (version uint64, read time.Time) {
		version = uint64(time.Since(now) / redraw)
		for _, f := range refresh {
			s := f()
			version += s.Version
			if !s.At.IsZero() && (read.IsZero() || s.At.Before(read)) {
				read = s.At
			}
		}
		return version, read
	}
}

// tabled arranges a table by the query.
func (v *Visit) tabled(t table.Table) *table.View {
	view := t.Arrange(v.link(v.page.Path), v.Query)
	return &view
}

// form returns a button that asks for an action: pairs of names and values.
func (v *Visit) form(button, label string, pairs ...string) table.Form {
	f := table.Form{Action: v.link("act"), Button: button, Label: label, Fields: [][2]string{{"token", v.Token}}}
	for i := 0; i+1 < len(pairs); i += 2 {
		f.Fields = append(f.Fields, [2]string{pairs[i], pairs[i+1]})
	}
	return f
}
