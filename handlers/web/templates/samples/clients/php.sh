php register.php
