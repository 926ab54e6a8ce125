package process

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"fairlead/internal/model/gateway"
)

// TestGatewayLogger writes a line of each level with the settings of a gateway.
func TestGatewayLogger(t *testing.T) {
	for name, c := range map[string]struct {
		static       gateway.Static
		want, reject string
	}{
		"default": {gateway.Static{}, "level=INFO msg=info", "msg=debug"},
		"debug":   {gateway.Static{LogLevel: "debug"}, "level=DEBUG msg=debug", "nothing"},
		"error":   {gateway.Static{LogLevel: "error"}, "level=ERROR msg=error", "msg=warn"},
		"json":    {gateway.Static{LogFormat: "json", LogLevel: "warn"}, `"level":"WARN","msg":"warn"`, `"info"`},
	} {
		t.Run(name, func(t *testing.T) {
			c.static.LogFile = filepath.Join(t.TempDir(), "log")
			log, _, err := GatewayLogger(c.static, os.Stderr)
			if err != nil {
				t.Fatal(err)
			}
			log.Debug("debug")
			log.Info("info")
			log.Warn("warn")
			log.Error("error")
			text, err := os.ReadFile(c.static.LogFile)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(string(text), c.want) || strings.Contains(string(text), c.reject) {
				t.Errorf("want %q, and not %q:\n%s", c.want, c.reject, text)
			}
		})
	}
	missing := gateway.Static{LogFile: filepath.Join(t.TempDir(), "none", "log")}
	if _, _, err := GatewayLogger(missing, os.Stderr); err == nil {
		t.Error("a file that cannot be opened is accepted")
	}
}
