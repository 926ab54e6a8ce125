// Package trial attaches sandboxes as driver routed does, under another name.
package trial

import (
	"fairlead/internal/driver/routed"
	"fairlead/internal/model"
)

// Driver implements driver.Driver.
type Driver struct{ routed.Driver }

// Name implements driver.Driver.
func (Driver) Name() model.Driver { return model.DriverTrial }
