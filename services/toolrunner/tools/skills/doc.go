// Package skills offers skills in the format of agentskills.io: folders with a file SKILL.md, which
// begins with settings in YAML and goes on with instructions for a task.
//
// A skill is shown in three steps. Its name and description are in the description of skills:load,
// so that the model always sees them. skills:load returns the instructions, and skills:read the
// other files of the folder.
//
// Guarantee: a skill's text is data. It reaches the model only as a description or a result, and
// nothing in it changes what an agent may do. Files are read only inside of the skill's folder;
// symbolic links are refused.
//
// Failure: a folder whose SKILL.md is wrong is left out, and [Library.List] says why, with the line.
//
// allowed-tools is in the metadata of a result of skills:load, and core enforces it.
package skills
