package provider

import (
	"context"
	"encoding/json"
	"log/slog"
	"os"

	"fairlead/internal/frontend/traefik"
	"fairlead/internal/model/gateway"
)

// trial reads a file of JSON once.
type trial struct{ value gateway.TrialProvider }

// NewTrial returns the provider for a file.
func NewTrial(value gateway.TrialProvider, _ *slog.Logger) (Provider, error) {
	return trial{value}, nil
}

// Follow implements Provider.
func (t trial) Follow(_ context.Context, changed Changed) {
	var config gateway.Config
	text, err := os.ReadFile(t.value.Path)
	if err == nil {
		err = json.Unmarshal(text, &config)
	}
	if err != nil {
		changed(gateway.Config{}, []traefik.Problem{{Source: "provider trial", Text: err.Error()}})
		return
	}
	changed(traefik.QualifiedAs("trial", config), nil)
}
