package chart

import (
	"context"
	"sync"
	"time"

	"fairlead/internal/api"
	"fairlead/internal/frontend/dashboard/history"
	"fairlead/internal/frontend/dashboard/page"
)

// readLimit is how long a page waits for the figures. It shows the earlier ones if they do not come.
const readLimit = time.Second

// live has the charts that are drawn.
type live struct {
	read func(context.Context) (api.History, error)
	mu   sync.Mutex
	// at is when the figures were read, drawn has the charts of the pages that were asked for since.
	at      time.Time
	figures api.History
	drawn   map[string][]page.Chart
}

// Live returns the charts of figures that change. However many viewers there are, it reads the figures and draws the
// charts of a page once for each sample, and only while there are viewers.
func Live(read func(context.Context) (api.History, error)) page.Charts {
	l := &live{read: read}
	return l.charts
}

func (l *live) charts(name string) []page.Chart {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now := time.Now(); now.Sub(l.at) >= history.Every {
		ctx, cancel := context.WithTimeout(context.Background(), readLimit)
		defer cancel()
		figures, err := l.read(ctx)
		if l.at = now; err == nil {
			l.figures, l.drawn = figures, map[string][]page.Chart{}
		}
	}
	if l.drawn == nil {
		return nil
	}
	charts, ok := l.drawn[name]
	if !ok {
		charts = Of(name, l.figures)
		l.drawn[name] = charts
	}
	return charts
}
