package standalone

import (
	"log/slog"
	"strings"
	"testing"

	"fairlead/internal/frontend/traefik"
	"fairlead/internal/gateway"
)

// TestReport checks that a problem is logged once, and that of a source not again for each object.
func TestReport(t *testing.T) {
	var log strings.Builder
	logger := slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey || a.Key == slog.LevelKey {
			return slog.Attr{}
		}
		return a
	}}))
	of := func(object, text string) gateway.Status {
		return statusOf(traefik.Problem{Object: object, Source: "a.yml", Text: text, Warning: true})
	}
	first := []gateway.Status{of("router a@file", "broken"), of("router b@file", "broken"), of("router b@file", "odd"),
		of("", "broken")}
	reported := Report(logger, "", first, nil)
	reported = Report(logger, "", first, reported)
	Report(logger, "", []gateway.Status{of("", "worse"), of("router a@file", "worse")}, reported)
	want := `msg="a.yml: odd" router=b@file state=warning
msg=broken source=a.yml state=warning
msg=worse source=a.yml state=warning
`
	if log.String() != want {
		t.Errorf("log:\n%swant\n%s", log.String(), want)
	}
}
