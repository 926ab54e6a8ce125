package process

import (
	"fmt"
	"log/slog"
	"os"

	"fairlead/internal/model/gateway"
)

// GatewayLogger returns a logger with the settings log.level, log.format and log.filePath
// of a gateway, and the file that it writes to. By default it writes text to the file given,
// from level info on.
func GatewayLogger(static gateway.Static, to *os.File) (*slog.Logger, *os.File, error) {
	level := slog.LevelInfo
	if static.LogLevel != "" {
		if err := level.UnmarshalText([]byte(static.LogLevel)); err != nil {
			return nil, nil, fmt.Errorf("log.level: %w", err)
		}
	}
	if static.LogFile != "" {
		file, err := os.OpenFile(static.LogFile, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o640)
		if err != nil {
			return nil, nil, fmt.Errorf("log.filePath: %w", err)
		}
		to = file
	}
	options := &slog.HandlerOptions{Level: level}
	switch {
	case static.LogFormat == "json":
		return slog.New(slog.NewJSONHandler(to, options)), to, nil
	case level == slog.LevelInfo:
		return Logger(to), to, nil
	}
	return slog.New(slog.NewTextHandler(to, options)), to, nil
}
