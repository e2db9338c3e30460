// Copyright The memslice Authors
//
// Licensed under the Apache License, Version 2.0 (the "License");
// you may not use this file except in compliance with the License.
// You may obtain a copy of the License at
//
//     http://www.apache.org/licenses/LICENSE-2.0
//
// Unless required by applicable law or agreed to in writing, software
// distributed under the License is distributed on an "AS IS" BASIS,
// WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
// See the License for the specific language governing permissions and
// limitations under the License.

package cdi

import (
	"fmt"

	"k8s.io/klog/v2"
)

// toolkitLogger takes what nvcdi logs. It warns of every optional file that a
// driver comes without, each time, and reports what counts as errors.
type toolkitLogger struct{ logger klog.Logger }

func (l toolkitLogger) log(verbosity int, level, format string, args []any) {
	if logger := l.logger.V(verbosity); logger.Enabled() {
		logger.Info("nvcdi: "+fmt.Sprintf(format, args...), "level", level)
	}
}

// Errorf logs at verbosity 4.
func (l toolkitLogger) Errorf(format string, args ...any) { l.log(4, "error", format, args) }

// Warningf logs at verbosity 5.
func (l toolkitLogger) Warningf(format string, args ...any) { l.log(5, "warning", format, args) }

// Infof logs at verbosity 5.
func (l toolkitLogger) Infof(format string, args ...any) { l.log(5, "info", format, args) }

// Debugf logs at verbosity 5.
func (l toolkitLogger) Debugf(format string, args ...any) { l.log(5, "debug", format, args) }

// Tracef logs at verbosity 5.
func (l toolkitLogger) Tracef(format string, args ...any) { l.log(5, "trace", format, args) }
