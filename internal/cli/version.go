package cli

import (
	"fmt"
	"io"
	"runtime"

	"fairlead/internal/cli/command"
	"fairlead/internal/cluster/mirror"
	"fairlead/internal/cluster/record"
	"fairlead/internal/gateway/acme/dns"
	"fairlead/internal/lab/history"
	"fairlead/internal/lab/result"
	"fairlead/internal/model"
	"fairlead/internal/model/gateway"
	"fairlead/internal/paths"
	"fairlead/internal/store"

	"github.com/spf13/cobra"
)

// programVersion is what `fairlead version -o json` prints. Nothing in it depends on the host.
type programVersion struct {
	Version  string   `json:"version"`
	Commit   string   `json:"commit"`
	Go       string   `json:"go"`
	Platform string   `json:"platform"`
	Features features `json:"features"`
	Formats  formats  `json:"formats"`
}

// features are the names of what the program has.
type features struct {
	Drivers      []model.Driver    `json:"drivers"`
	PublishModes []model.Via       `json:"publishModes"`
	DataPlanes   []model.Plane     `json:"dataPlanes"`
	Schedulers   []model.Scheduler `json:"schedulers"`
	Middlewares  []string          `json:"middlewares"`
	DNSProviders []string          `json:"dnsProviders"`
}

// formats are the versions of what the program stores. acme.json has the format of Traefik's, and a node's
// membership is JSON with optional fields: both have no version.
type formats struct {
	Store          int `json:"store"`
	ClusterRecords int `json:"clusterRecords"`
	ClusterMirror  int `json:"clusterMirror"`
	LabReport      int `json:"labReport"`
	LabHistory     int `json:"labHistory"`
}

func newVersion(a *command.App) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Long: "Print the version. With -o json, print also the drivers, publish modes, data planes, schedulers,\n" +
			"middlewares and DNS providers that the program has, and the versions of its stored formats. The\n" +
			"command does not look at the host: `fairlead paths` shows what this kernel supports.",
		Example: "  fairlead version\n  fairlead version -o json",
		Args:    command.Arguments(cobra.NoArgs),
		RunE: func(*cobra.Command, []string) error {
			if a.Output == "json" {
				return a.JSON(describe(a.Build))
			}
			_, err := io.WriteString(a.Out.Document(), versionLine(a.Build))
			return err
		},
	}
}

func describe(build command.Build) programVersion {
	return programVersion{
		Version: build.Version, Commit: build.Commit, Go: runtime.Version(), Platform: platform,
		Features: features{
			Drivers:      names(paths.Drivers()),
			PublishModes: names(paths.Modes()),
			DataPlanes:   names(paths.Planes()),
			Schedulers:   model.AllSchedulers(),
			Middlewares:  gateway.Middlewares(),
			DNSProviders: dns.Providers(),
		},
		Formats: formats{
			Store: store.Format, ClusterRecords: record.Format, ClusterMirror: mirror.Format, LabReport: result.Format,
			LabHistory: history.Schema,
		},
	}
}

// names returns the name of each object.
func names[N ~string, T interface{ Name() N }](all []T) (found []N) {
	for _, each := range all {
		found = append(found, each.Name())
	}
	return found
}

const platform = runtime.GOOS + "/" + runtime.GOARCH

// versionLine returns what `fairlead version` and `fairlead --version` print.
func versionLine(build command.Build) string {
	return fmt.Sprintf("fairlead %s (%s, %s %s)\n", build.Version, build.Commit, runtime.Version(), platform)
}
