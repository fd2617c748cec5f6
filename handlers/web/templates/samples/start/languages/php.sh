php first.php
