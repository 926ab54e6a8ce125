package cli

import (
	"fmt"
	"io"
	"runtime"

	"github.com/spf13/cobra"
)

func newVersion(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Print the version",
		Example: "  fairlead version\n  fairlead version -o json",
		Args:    arguments(cobra.NoArgs),
		RunE: func(*cobra.Command, []string) error {
			if a.output == "json" {
				return a.json(map[string]string{"version": a.version, "go": runtime.Version(), "platform": runtime.GOOS + "/" + runtime.GOARCH})
			}
			_, err := io.WriteString(a.out.document(), versionLine(a.version))
			return err
		},
	}
}

// versionLine returns what `fairlead version` and `fairlead --version` print.
func versionLine(version string) string {
	return fmt.Sprintf("fairlead %s (%s %s/%s)\n", version, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}
