package process

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"fairlead/internal/escape"
)

// TestLogLinesAreOneLine logs a hostile name as a text, an error and a message.
func TestLogLinesAreOneLine(t *testing.T) {
	evil := "x\x1b[31m\nlevel=ERROR msg=FORGED\u202e\u200b\xff"
	var journal, file bytes.Buffer
	for _, h := range []slog.Handler{newJournal(&journal), slog.NewTextHandler(&file, nil)} {
		slog.New(h).With("link", evil).WithGroup("g").Warn(evil, "name", evil, "error", errors.New(evil))
	}
	for _, b := range []*bytes.Buffer{&journal, &file} {
		line, one := strings.CutSuffix(b.String(), "\n")
		if !one || escape.Line(line) != line {
			t.Errorf("the log has %q", b)
		}
	}
}
