package process

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"

	"golang.org/x/sys/unix"
)

// Logger returns a logger that writes to a file: text with the time and the level. If
// the file is systemd's journal, which records the time itself, each line begins with
// its priority (sd-daemon(3)).
func Logger(to *os.File) *slog.Logger {
	if !isJournal(to, os.Getenv("JOURNAL_STREAM")) {
		return slog.New(slog.NewTextHandler(to, nil))
	}
	return slog.New(newJournal(to))
}

// isJournal reports whether the file is the stream that JOURNAL_STREAM names
// (systemd.exec(5)). The file can be another one if it was redirected.
func isJournal(f *os.File, stream string) bool {
	var st unix.Stat_t
	return stream != "" && unix.Fstat(int(f.Fd()), &st) == nil && stream == fmt.Sprintf("%d:%d", st.Dev, st.Ino)
}

// priorities are syslog's priorities for each level and those above it.
var priorities = []struct {
	from   slog.Level
	prefix string
}{{slog.LevelError, "<3>"}, {slog.LevelWarn, "<4>"}, {slog.LevelInfo, "<6>"}}

// journal writes each record with the handler of its priority.
type journal []slog.Handler

func newJournal(to io.Writer) journal {
	var j journal
	for _, p := range priorities {
		j = append(j, slog.NewTextHandler(prefixed{to, p.prefix}, &slog.HandlerOptions{ReplaceAttr: dropRecorded}))
	}
	return j
}

// dropRecorded leaves out the attributes that the journal records itself.
func dropRecorded(groups []string, a slog.Attr) slog.Attr {
	if len(groups) == 0 && (a.Key == slog.TimeKey || a.Key == slog.LevelKey) {
		return slog.Attr{}
	}
	return a
}

// Enabled implements slog.Handler.
func (j journal) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelInfo }

// Handle implements slog.Handler.
func (j journal) Handle(ctx context.Context, r slog.Record) error {
	for i, p := range priorities {
		if r.Level >= p.from {
			return j[i].Handle(ctx, r)
		}
	}
	return nil
}

// WithAttrs implements slog.Handler.
func (j journal) WithAttrs(attrs []slog.Attr) slog.Handler {
	return j.with(func(h slog.Handler) slog.Handler { return h.WithAttrs(attrs) })
}

// WithGroup implements slog.Handler.
func (j journal) WithGroup(name string) slog.Handler {
	return j.with(func(h slog.Handler) slog.Handler { return h.WithGroup(name) })
}

func (j journal) with(fn func(slog.Handler) slog.Handler) slog.Handler {
	next := make(journal, len(j))
	for i, h := range j {
		next[i] = fn(h)
	}
	return next
}

// prefixed writes a prefix before each record. A record is one line.
type prefixed struct {
	to     io.Writer
	prefix string
}

func (p prefixed) Write(line []byte) (int, error) {
	_, err := p.to.Write(append([]byte(p.prefix), line...))
	return len(line), err
}
