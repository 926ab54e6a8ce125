package gateway

import (
	"log/slog"

	"fairlead/internal/gateway/status"
	"fairlead/internal/model/gateway"
)

// Checking returns a gateway for Explain and Status with a configuration. It serves nothing,
// opens no file of static, checks no server, and needs no Close.
func Checking(static gateway.Static, config *gateway.Config, known []status.Status) (*Gateway, error) {
	static.AccessLog = nil
	g, err := New(static, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, err
	}
	g.objects.Check(config, known)
	return g, nil
}
